import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import fc from "../../fast_check.ts";
import { createSystem } from "../../../actors/runtime/mod.ts";
import {
  beginJournal,
  digestOf,
  random,
  readJournal,
  ReplayError,
  replayInbox,
  replayJournal,
  type Scenario,
  simulate,
  writeJournal,
} from "../../../testing.ts";
import { parseJournal } from "../../../actors/simulation/journal.ts";
import { decodePayload, encodePayload } from "../../../actors/simulation/payload_codec.ts";
import { ASKER, GUARD, playAsker, playRing, playSum, SUM } from "./players.ts";

const MODULE = new URL("./players.ts", import.meta.url).href;

async function withFile(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await test(path);
  } finally {
    await Deno.remove(path);
  }
}

const ring: Scenario<void> = (world) => playRing(world, { nodes: 4, tokens: 3, hops: 10 });

/** Records a run of the ring in a random order. */
async function recordRing(path: string, options: object = {}) {
  const { onStep, onMessage, close } = await writeJournal({
    path,
    seed: 4,
    strategy: "random",
    actors: [MODULE],
    ...options,
  });
  const run = await simulate({ seed: 4, strategy: random(), onStep, onMessage }, ring);
  close();
  return run;
}

const values = fc.anything({
  withBigInt: true,
  withMap: true,
  withSet: true,
  withTypedArray: true,
  withNullPrototype: false,
  key: fc.oneof(fc.string(), fc.constant("$")).filter((key) => key !== "__proto__"),
});

Deno.test("what a journal keeps of a message is the message, bit for bit", () => {
  fc.assert(fc.property(values, (value) => {
    const text = JSON.stringify(encodePayload(value));
    const read = decodePayload(JSON.parse(text));
    assert.equal(digestOf(read), digestOf(value));
    assert.deepEqual(read, value);
  }));
  assert.throws(() => encodePayload({ when: new Date(0) }), /must hold plain data.*received Date/);
});

Deno.test("a journal says what a run was, in a header and a line for each step", async () => {
  await withFile(async (path) => {
    const run = await recordRing(path, { configuration: { stages: 4 }, device: "reference" });
    const { header, steps, isTorn } = await readJournal(path);
    assert.deepEqual(
      { ...header, package: "", actors: Object.keys(header.actors), deno: "" },
      {
        format: "troupe-journal",
        version: 1,
        package: "",
        seed: 4,
        strategy: "random",
        configuration: { stages: 4 },
        actors: ["players.ts"],
        device: "reference",
        deno: "",
      },
    );
    assert.match(header.actors["players.ts"]!, /^[0-9a-f]{64}$/);
    assert.equal(steps.length, run.steps);
    assert.equal(steps.at(-1)!.hash, run.hash);
    assert.equal(isTorn, false);
    assert.equal(steps.at(-1)!.name?.slice(0, 2), "0F");
  });
});

Deno.test("a journal of a simulation replays choice by choice", async () => {
  await withFile(async (path) => {
    const run = await recordRing(path);
    const again = await replayJournal(path, ring, { actors: [MODULE] });
    assert.equal(again.hash, run.hash);
    assert.deepEqual(again.deviations, run.deviations);
  });
});

/** Changes a journal's text, and keeps its hashes right if asked to. */
async function change(path: string, from: RegExp, to: string): Promise<void> {
  const text = await Deno.readTextFile(path);
  assert.match(text, from);
  await Deno.writeTextFile(path, text.replace(from, to));
}

Deno.test("a journal whose line was changed is refused, and the line is named", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await change(path, /"type":"Pass","name":"0F1"/, '"type":"Pass","name":"0F2"');
    await assert.rejects(
      replayJournal(path, ring),
      /the hash of step \d+ of isolate 0 in line \d+ must be .*; it was changed after/,
    );
  });
});

Deno.test("what an actor did counts in replay, though in no hash", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await change(path, /send node-2 Pass [0-9a-f]{16}/, "send node-3 Pass 0000000000000000");
    await assert.rejects(
      replayJournal(path, ring),
      /Cannot replay step \d+: it must be "send node-3 Pass 0{16}" .*, received "send node-2 Pass/,
    );
  });
});

Deno.test("another package version or a changed actor is refused before the first step", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    await change(path, /"package":"[^"]+"/, '"package":"0.0.1"');
    await assert.rejects(replayJournal(path, ring), /must be package version 0.0.1, received/);
    await replayJournal(path, ring, { mayHaveChanged: true });
    await recordRing(path);
    await change(path, /"players.ts":"[0-9a-f]{64}"/, `"players.ts":"${"0".repeat(64)}"`);
    const actors = [MODULE];
    await assert.rejects(
      replayJournal(path, ring, { actors }),
      /must be module players.ts with hash 0{64}, received hash/,
    );
    await replayJournal(path, ring, { actors, mayHaveChanged: true });
  });
});

Deno.test("another scenario is found at its first step, with who was runnable", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const error = await replayJournal(
      path,
      (world) => playRing(world, { nodes: 4, tokens: 2, hops: 10 }),
    ).catch((error) => error);
    assert.ok(error instanceof ReplayError);
    assert.equal(error.step, 8);
    assert.match(error.message, /one of 3 candidates, received one of 2|must be node-2 < system#2/);
    assert.ok(error.runnable.length === 2);
  });
});

Deno.test("a run that ends before the journal does is a difference", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const shorter: Scenario<void> = async ({ system }) => {
      for (let n = 0; n < 4; n++) system.spawn(SUM, undefined, { id: `node-${n}` });
      await Promise.resolve();
    };
    await assert.rejects(replayJournal(path, shorter), ReplayError);
  });
});

Deno.test("a torn last line is tolerated and reported", async () => {
  await withFile(async (path) => {
    await recordRing(path);
    const text = await Deno.readTextFile(path);
    const whole = parseJournal(text);
    for (const cut of [1, 2, 50]) {
      const { steps, isTorn } = parseJournal(text.slice(0, -cut));
      assert.equal(isTorn, true);
      assert.deepEqual(steps, whole.steps.slice(0, -1));
    }
  });
});

Deno.test("a journal survives the kill of its program, up to the last flush", async () => {
  await withFile(async (path) => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", fileURLToPath(new URL("./killed_writer.ts", import.meta.url)), path],
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const reader = child.stdout.getReader();
    await reader.read();
    child.kill("SIGKILL");
    await child.status;
    await reader.cancel();
    const { steps } = await readJournal(path);
    assert.ok(steps.length >= 2000, `${steps.length} steps`);
    assert.deepEqual(steps.slice(-3).map(({ n }) => n - steps.length), [-3, -2, -1]);
  });
});

/** Real actors: one in a worker asks and tells one in another, which has state. */
async function recordReal(path: string, isolate: "local" | "worker" | "process"): Promise<void> {
  const observer = await beginJournal({ path, actors: [MODULE], payloads: true });
  await using system = createSystem({ observer });
  await playAsker(system, isolate);
}

/** The same from outside, simulated. */
const real: Scenario = ({ system }) => playAsker(system);

for (const isolate of ["local", "worker", "process"] as const) {
  Deno.test(`${isolate}: a journal of real actors replays simulated, to the same hashes`, async () => {
    await withFile(async (path) => {
      await recordReal(path, isolate);
      const { steps } = await readJournal(path);
      const played = steps.filter(({ actor }) => actor !== "system");
      assert.equal(new Set(played.map((step) => step.isolate)).size, isolate === "local" ? 1 : 2);
      const chains = new Map<string, string>();
      await replayJournal(path, real, {
        actors: [MODULE],
        onStep: ({ actor, chain }) => void chains.set(actor, chain),
      });
      for (const actor of ["sum", "asker"]) {
        const recorded = steps.findLast((step) => step.actor === actor && step.type !== "finish");
        assert.equal(chains.get(actor), recorded!.chain);
      }
    });
  });

  Deno.test(`${isolate}: one actor replays alone from its inbox`, async () => {
    await withFile(async (path) => {
      await recordReal(path, isolate);
      const journal = await readJournal(path);
      const sum = await replayInbox(SUM, journal);
      const stepsOf = (id: string) => journal.steps.filter(({ actor }) => actor === id).length;
      assert.equal(sum.steps, stepsOf("sum"));
      assert.equal(sum.states, sum.steps);
      const asker = await replayInbox(ASKER, path);
      assert.equal(asker.steps, stepsOf("asker"));
      assert.equal(asker.compared, 43);
    });
  });
}

Deno.test("an inbox shows a changed actor at the first message where it matters", async () => {
  await withFile(async (path) => {
    await recordReal(path, "local");
    const journal = await readJournal(path);
    const { sum } = await import("./players.ts");
    const off: typeof sum = (ctx, init) => {
      const handlers = sum(ctx, init) as Awaited<ReturnType<typeof sum>>;
      return {
        ...handlers,
        // As if somebody had left out the rounding to f32.
        Add: ({ by }) => handlers.Add({ type: "Add", by: by === 4 / 3 ? by + 1e-12 : by }),
      };
    };
    const error = await replayInbox(off, journal, { id: "sum" }).catch((error) => error);
    assert.ok(error instanceof ReplayError);
    assert.match(error.message, /it must be state [0-9a-f]{16}, received state/);
    const wanted = journal.steps.filter(({ actor, type }) => actor === "sum" && type === "Add")[4]!;
    assert.equal(error.step, wanted.n);
  });
});

Deno.test("an inbox with a changed message is refused", async () => {
  await withFile(async (path) => {
    await recordReal(path, "local");
    await change(
      path,
      /\{"payload":"([0-9a-f]+)","is":\{"type":"Add","by":4\}\}/,
      '{"payload":"$1","is":{"type":"Add","by":5}}',
    );
    await assert.rejects(replayInbox(SUM, path), /must be message [0-9a-f]{16}, received message/);
  });
});

Deno.test("an actor replays with its clock, its chance, its children and its timers", async () => {
  await withFile(async (path) => {
    const { onStep, onMessage, close } = await writeJournal({ path, seed: 9, payloads: true });
    await simulate({ seed: 9, onStep, onMessage }, async ({ system, idle }) => {
      const guard = system.spawn(GUARD, undefined, { id: "guard" });
      for (const n of [1, 2, Infinity]) system.send(guard, { type: "Tell", n });
      await idle();
      system.send(guard, { type: "Dice" });
      await idle();
      await system.ask(guard, { type: "Read" });
    });
    close();
    const { steps, compared } = await replayInbox(GUARD, path);
    assert.ok(steps >= 6 && compared >= 8, `${steps} ${compared}`);
    await assert.rejects(replayInbox(GUARD, path, { id: "nobody" }), /must hold its first message/);
    await change(path, /"seed":9/, '"seed":8');
    await assert.rejects(replayInbox(GUARD, path), ReplayError);
  });
});

Deno.test("without payloads an inbox cannot be replayed, and that is said", async () => {
  await withFile(async (path) => {
    const { onStep, close } = await writeJournal({ path });
    await simulate({ onStep }, (world) => playSum(world, [[1]]));
    close();
    await assert.rejects(
      replayInbox(SUM, path, { id: "sum" }),
      /Cannot replay step 0 from its message: the journal must keep payloads/,
    );
  });
});
