/** Actors in workers, and transports that break their promises. */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { type RemoteIsolate, type Transport } from "../../../actors/runtime/mod.ts";
import { Agent } from "../../../actors/transports/agent.ts";
import { encodeFrame } from "../../../actors/transports/codec.ts";
import { PortChannel } from "../../../actors/transports/ports.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { WORKER_TRANSPORT } from "../../../actors/transports/worker.ts";
import { changedDevice } from "../../kernels/own_memory.ts";
import { watchThreads } from "../child_processes.ts";
import { runContract } from "./contract.ts";
import { ARRIVALS, neighbours } from "./contract/isolates.ts";
import { register } from "./contract/suite.ts";
import { downOf, failureOf, thrownBy, withSystem } from "./harness.ts";
import { plain, RECORDER, SERVER } from "./players.ts";

const isolate = "worker";

runContract({ isolate });
register({ isolate }, { ...ARRIVALS, ...neighbours("worker", "process") });

Deno.test("worker: an actor whose worker closes itself, or is terminated, is down", async () => {
  using threads = watchThreads();
  await withSystem({}, async (system) => {
    const spawn = (id: string) => system.spawn(SERVER, undefined, { id, isolate });
    const closed = spawn("closed");
    await system.ask(closed, { type: "Double", n: 1 });
    const terminated = spawn("terminated");
    await system.ask(terminated, { type: "Double", n: 1 });
    const failures = [closed, terminated].map((ref) => failureOf(system, ref));
    system.send(closed, { type: "Close" });
    [...threads.living].at(-1)!.terminate();
    const [one, other] = await Promise.all(failures);
    assert.match(one!.error.message, /^the worker of "closed" has ended: it called/);
    assert.equal(other!.kind, "exit");
  });
});

/** A transport of that name, opened as given. */
const named = (open: Transport["open"]): Transport => ({
  ...WORKER_TRANSPORT,
  name: "broken",
  open,
});

/** Deno workers, of whose transport some promises are broken. */
const broken = (promises: (whole: RemoteIsolate) => Partial<RemoteIsolate>): Transport =>
  named((options) => {
    const { start } = WORKER_TRANSPORT.open(options);
    return {
      start(request) {
        const whole = start(request);
        return changedDevice(whole, promises(whole));
      },
    };
  });

const refuse = (what: string) => () => {
  throw new Error(`no ${what} today`);
};

const never = <T>() => new Promise<T>(() => {});

const place = { isolate: "broken" } as const, stopGraceMs = 100;

Deno.test("a transport that cannot send costs the isolate, and send does not throw", () => {
  const transport = broken(() => ({ send: refuse("post") }));
  return withSystem({ transport, stopGraceMs }, async (system) => {
    const actor = system.spawn(RECORDER, undefined, { id: "far", ...place });
    const failure = failureOf(system, actor);
    system.send(actor, { type: "Note", what: 1 });
    const what = /the broken of "far" has ended: its transport cannot send: no post today/;
    assert.match((await failure).error.message, what);
    assert.match((await thrownBy(system.ask(actor, { type: "Read" }))).message, what);
  });
});

Deno.test("a transport that cannot report an end has reported one", () => {
  const transport = broken(({ gone }) => ({ gone: gone.then(refuse("news")) }));
  return withSystem({ transport, stopGraceMs }, async (system) => {
    const module = "data:text/javascript,export const quitter = () => (self.close(), {})";
    const actor = system.spawn({ module, export: "quitter" }, undefined, { id: "far", ...place });
    const { error } = await failureOf(system, actor);
    assert.match(error.message, /its transport cannot tell of its end: no news today/);
  });
});

Deno.test("an isolate that is gone gets nothing, and the addresses that it still sends are declined", () => {
  const declined: unknown[] = [], gone = Promise.resolve("lost");
  let late = () => {};
  const transport = named(() => ({
    decline: (address) => void declined.push(address),
    start({ receive }) {
      late = () => receive({ kind: "invite", to: 1, address: "late", transfer: [] });
      return { send() {}, close() {}, kill() {}, gone, ended: gone.then(() => {}) };
    },
  }));
  return withSystem({ transport, stopGraceMs }, async (system) => {
    await failureOf(system, system.spawn(RECORDER, undefined, { id: "far", ...place }));
    late();
    assert.deepEqual(declined, ["late"]);
  });
});

Deno.test("a host that is not trusted harms no actor by its messages and answers", () => {
  const excluded: string[] = [], gone = Promise.withResolvers<string>();
  let forge: (frame: unknown) => void;
  const end = () => gone.resolve("lost"), ended = gone.promise.then(() => {});
  const transport = named(() => ({
    start({ receive }) {
      forge = receive;
      const exclude = (why: string) => void excluded.push(why);
      return { send() {}, close: end, kill: end, gone: gone.promise, ended, exclude };
    },
  }));
  return withSystem({ transport, stopGraceMs }, async (system) => {
    const far = system.spawn(RECORDER, undefined, { id: "far", ...place });
    const near = system.spawn(RECORDER, undefined, { id: "near" });
    const notes = system.ask(near, { type: "Wait", count: 1 });
    const outcome = { status: "answered", value: "forged" };
    for (let ask = 0; ask < 9; ask++) forge({ kind: "answer", from: far.isolate, ask, outcome });
    for (const type of ["Nope", "NoteBytes"]) {
      forge({ kind: "message", from: far, to: near, lane: "data", message: { type } });
    }
    system.send(near, { type: "Note", what: 1 });
    assert.deepEqual(await notes, [1]);
    const refusal = /^it has sent Nope to "near": Cannot handle "Nope": its type must be/;
    assert.match(excluded[0]!, refusal);
    assert.match(excluded[1]!, /^it has sent NoteBytes to "near": .*not iterable/);
    const failure = failureOf(system, far);
    end();
    await failure;
  });
});

Deno.test("worker: a message that is nested too deep is refused or ends an actor, and none waits", () =>
  withSystem({ stopGraceMs }, async (system) => {
    const nest = "(depth) => { let v = 0; while (depth-- > 0) v = { v }; return v; }";
    const spec = plain(`(ctx) => ({
      Take() { ctx.reply("taken"); },
      Make({ depth }) { ctx.reply((${nest})(depth)); },
    })`);
    const messages = [
      (depth: number) => ({ type: "Make", depth }),
      (depth: number) => ({ type: "Take", value: new Function(`return ${nest}`)()(depth) }),
    ];
    for (const [n, message] of messages.entries()) {
      const ref = system.spawn(spec, undefined, { id: `nest ${n}`, isolate });
      system.watch(ref, () => {});
      let error: Error | undefined;
      for (let depth = 2000; !error; depth += 100) {
        await system.ask(ref, message(depth), { timeoutMs: 10_000 }).catch((one) => error = one);
      }
      assert.match(error.message, /stack size|cannot be read|could not deserialize/);
    }
  }));

Deno.test("worker: an asker in a process is told of an answer that cannot reach it", () =>
  withSystem({}, async (system) => {
    const server = plain("(ctx) => ({ Read() { ctx.reply(new SharedArrayBuffer(8)); } })");
    const to = system.spawn(server, undefined, { id: "server", isolate });
    const client = plain(`(ctx, to) => ({
      async Ask() { ctx.reply(await ctx.ask(to, { type: "Read" }).catch(String)); },
    })`);
    const asker = system.spawn(client, to, { id: "client", isolate: "process" });
    const reason =
      'TypeError: Cannot ask "server" for "Read": SharedArrayBuffer could not be cloned for another process';
    assert.equal(await system.ask(asker, { type: "Ask" }, { timeoutMs: 10_000 }), reason);
  }));

Deno.test("worker: only its isolate ends if an agent cannot pass a message on to another process", async () => {
  const causes = Promise.withResolvers<string>(), ended = Promise.withResolvers<void>();
  const agent = new Agent(WORKER_TRANSPORT.open({ stopGraceMs }), {
    tell(report) {
      encodeFrame(report, []);
      if (report.kind === "gone") causes.resolve(report.cause);
      else if (report.kind === "ended") ended.resolve();
    },
  });
  const ref = { id: "plain", isolate: 1, serial: 1 },
    parent = { id: "system", isolate: 0, serial: 0 };
  const share =
    "(ctx, to) => (ctx.send(to, { type: 'Shared', memory: new SharedArrayBuffer(8) }), {})";
  const launch = {
    ...{ kind: "launch", ref, parent, spec: plain(share), init: parent },
    ...{ capacity: 1, place: { isolate } },
  };
  const boot = { kind: "boot", isolate: 1, seed: 0, stopGraceMs, places: [], launch };
  agent.receive({ kind: "start", isolate: 1, boot });
  assert.match(await causes.promise, /^it has sent a message that cannot leave .*: SharedArray/);
  await ended.promise;
});

Deno.test("worker: a port that is sent to an ended worker is closed", async () => {
  const request = { isolate: 1, memoryLimitMb: undefined, transfer: [], receive() {} };
  const worker = WORKER_TRANSPORT.open({ stopGraceMs }).start({ ...request, boot: {} });
  worker.kill();
  await worker.gone;
  const { port1, port2 } = new MessageChannel();
  worker.send({ kind: "accept", address: port2 }, [port2]);
  port1.close();
  assert.throws(() => structuredClone(0, { transfer: [port2] }), { name: "DataCloneError" });
});

Deno.test("a port that is sent over a channel whose other end is gone is closed", async () => {
  const { port1, port2 } = new MessageChannel(), sent = new MessageChannel();
  const channel = new PortChannel(port1, () => {});
  channel.listen();
  channel.drain(); // Deno closes a drained port when the other end is gone
  const closed = new Promise((resolve) => port1.addEventListener("close", resolve));
  port2.close();
  await closed;
  channel.send({ kind: "accept", address: sent.port2 }, [sent.port2]);
  sent.port1.close();
  assert.throws(() => structuredClone(0, { transfer: [sent.port2] }), { name: "DataCloneError" });
});

const BROKEN: Record<string, (whole: RemoteIsolate) => Partial<RemoteIsolate>> = {
  "never tells of an end": () => ({ gone: never() }),
  "never ends": () => ({ ended: never() }),
  "cannot kill": (whole) => ({ kill: () => (whole.kill(), refuse("murder")()) }),
};

for (const [what, promises] of Object.entries(BROKEN)) {
  Deno.test(`a system ends whose transport ${what}`, async () => {
    const system = createSystem({ transport: broken(promises), stopGraceMs: 1000 });
    const actors = ["one", "other"].map((id) =>
      system.spawn(RECORDER, undefined, { id, ...place })
    );
    for (const actor of actors) assert.deepEqual(await system.ask(actor, { type: "Read" }), []);
    const down = downOf(system, actors[0]!);
    await system.stop(actors[0]!);
    assert.equal((await down).reason, "stopped");
    await system.stop();
  });
}

/** Allocates garbage, and answers with the size of its heap. */
const WASTER = plain(`(ctx) => ({
  Waste() { Array.from({ length: 500_000 }, (_, n) => ({ n })); },
  Heap() { ctx.reply(Deno.memoryUsage().heapTotal); },
})`);

Deno.test("workers and processes give back what their heaps have grown by", () =>
  withSystem({}, async (system) => {
    const wasters = ["worker", "process"].map((isolate) =>
      system.spawn(WASTER, undefined, { id: isolate, isolate })
    );
    await Promise.all(wasters.map(async (waster) => {
      const heap = (): Promise<number> => system.ask(waster, { type: "Heap" });
      for (let round = 0;; round++) {
        assert.ok(round < 10, `nothing is given back by ${waster.id}`);
        system.send(waster, { type: "Waste" });
        const grown = await heap();
        // V8 leaves an isolate alone that does nothing for so short a time.
        await delay(1200);
        if (await heap() < grown - 2 ** 23) break;
      }
    }));
  }));
