/** The order in which messages are handled: mailboxes, choices, time and random numbers. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { headsOf } from "../../../actors/runtime/actor.ts";
import { type Isolate, LANES } from "../../../actors/runtime/isolate.ts";
import { type Envelope, Mailbox } from "../../../actors/runtime/mailbox.ts";
import {
  ActorFailedError,
  AskTimeoutError,
  type Candidate,
  type Choose,
  type Lane,
} from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { openSystem, type World } from "../../../actors/runtime/root.ts";
import type { IsolateRegistry } from "../../../actors/runtime/isolates.ts";
import { type Clock, realClock, substream } from "../../../actors/runtime/world.ts";
import { VirtualClock } from "../../../actors/simulation/chooser.ts";
import { atDepth } from "../../depth.ts";
import { failureOf, thrownBy } from "./harness.ts";
import { CLOCKWORK, inOrder, plain, RECORDER, SENDER, type SenderNote, SERVER } from "./players.ts";

const RUNS = { numRuns: atDepth(25, 250) };

const lane = fc.constantFrom(...LANES);

/** Adds a message to a mailbox, or takes out one of the next candidates. */
const turn = fc.oneof(
  { weight: 3, arbitrary: fc.record({ serial: fc.nat(2), isolate: fc.nat(1), lane }) },
  { weight: 2, arbitrary: fc.record({ take: fc.nat() }) },
);

const ages = (all: Iterable<Envelope>) => Array.from(all, ({ seq }) => seq).join();

const senderOf = ({ from: { isolate, serial }, lane }: Envelope) => `${isolate}/${serial} ${lane}`;

Deno.test("a mailbox gives control before data before idle, and of each sender and lane the oldest may come next", () => {
  fc.assert(fc.property(fc.array(turn, { size: "large" }), fc.boolean(), (turns, isDrained) => {
    const mailbox = new Mailbox(), waiting: Envelope[] = [];
    const plain = () => waiting.toSorted((a, b) => LANES.indexOf(a.lane) - LANES.indexOf(b.lane));
    for (const [seq, turn] of turns.entries()) {
      if ("take" in turn) {
        const heads = mailbox.heads(), taken = heads[turn.take % heads.length];
        const oldest = Map.groupBy(plain(), senderOf).values().map(([first]) => first!);
        assert.equal(ages(heads), ages(oldest));
        if (!taken) continue;
        waiting.splice(waiting.indexOf(taken), 1);
        assert.deepEqual([mailbox.remove(taken), mailbox.remove(taken)], [true, false]);
      } else {
        const from = { id: "sender", ...turn }, message = { type: "Note" };
        const envelope: Envelope = { seq, nth: 0, lane: turn.lane, from, message };
        mailbox.push(envelope);
        waiting.push(envelope);
      }
      assert.equal(mailbox.length, waiting.length);
      assert.equal(mailbox.head(), plain()[0]);
    }
    assert.equal(ages(mailbox), ages(plain()));
    if (isDrained) assert.equal(ages(mailbox.drain()), ages(plain()));
    else for (const one of waiting) assert.ok(mailbox.remove(one));
    assert.equal(mailbox.length, 0);
  }));
});

/** Three actors send notes to a fourth; gives the notes in the order of their handling. */
async function play(lanes: readonly Lane[], choose?: Choose): Promise<readonly SenderNote[]> {
  await using system = createSystem(choose ? { choose } : {});
  const to = system.spawn(RECORDER, undefined, { id: "recorder" });
  const ids = ["a", "b", "c"];
  for (const id of ids) system.send(system.spawn(SENDER, { to, lanes }, { id }), { type: "Go" });
  return await system.ask(to, { type: "Wait", count: ids.length * lanes.length });
}

const lanes = fc.array(lane, { maxLength: 12 });

Deno.test("every message is handled, in order of sender and lane, whatever is chosen", () =>
  fc.assert(
    fc.asyncProperty(lanes, fc.integer(), async (lanes, seed) => {
      const next = substream(seed, "choose");
      const notes = await play(lanes, ({ length }) => Math.floor(length * next()));
      assert.ok(inOrder(notes, ["a", "b", "c"], lanes));
    }),
    RUNS,
  ));

Deno.test("the choice of the first candidate is plain order, another choice is another order", async () => {
  await fc.assert(
    fc.asyncProperty(lanes, async (lanes) => {
      assert.deepEqual(await play(lanes, () => 0), await play(lanes));
    }),
    RUNS,
  );
  const mixed: Lane[] = ["data", "data", "data", "control"];
  const last: Choose = ({ length }) => length - 1;
  assert.notDeepEqual(await play(mixed, last), await play(mixed));
  assert.deepEqual(await play(mixed, last), await play(mixed, last));
});

/** A world without transports, whose isolate a test can look into. */
function openWorld(clock: Clock, more: Partial<World> = {}) {
  let isolate!: Isolate;
  const world = { seed: 0, clock, breathe: () => undefined, stopGraceMs: 1000 };
  const system = openSystem({ ...world, attach: (one) => void (isolate = one), ...more });
  return { system, isolate: () => isolate };
}

Deno.test("the candidates kept from step to step equal those found by a search of every actor", () =>
  fc.assert(
    fc.asyncProperty(lanes, fc.integer(), async (lanes, seed) => {
      const next = substream(seed, "choose");
      let checked = 0;
      const choose: Choose = (candidates) => {
        const all = [...world.isolate().actors.values()].flatMap(headsOf);
        const rank = ({ lane, seq }: { lane: Lane; seq: number }) =>
          LANES.indexOf(lane) * 2 ** 51 + seq;
        const expected = all.toSorted((a, b) => rank(a) - rank(b)).map(({ seq }) => seq);
        assert.deepEqual(candidates.map(({ seq }) => seq), expected);
        checked++;
        return Math.floor(next() * candidates.length);
      };
      const world = openWorld(realClock(), { choose });
      await using system = world.system;
      const to = system.spawn(RECORDER, undefined, { id: "recorder" });
      const senders = ["a", "b", "c"].map((id) => system.spawn(SENDER, { to, lanes }, { id }));
      for (const sender of senders) system.send(sender, { type: "Go" });
      await system.ask(senders[0]!, { type: "Go" });
      system.send(to, { type: "Watch", ref: senders[1]! });
      await system.stop();
      assert.ok(checked > 8);
    }),
    RUNS,
  ));

Deno.test("candidates have their sender, number, lane, type and receiver", async () => {
  const seen: Candidate[] = [];
  await play(["data", "control", "control"], (candidates) => {
    seen.push(...candidates);
    return candidates.length - 1;
  });
  const all = seen.map((one) => `${one.from}#${one.nth} ${one.lane} ${one.type} ${one.actor}`);
  for (const one of ["system#0 control init recorder", "system#1 data Go b"]) {
    assert.ok(all.includes(one), one);
  }
  assert.ok(all.includes("b#2 control Note recorder"));
});

Deno.test("a choice that is none fails the system", async () => {
  let count = 0;
  const choose: Choose = ({ length }) => count++ === 0 ? length : 0;
  await using system = createSystem({ choose });
  system.spawn(RECORDER, undefined, { id: "recorder" });
  const error = await thrownBy(system.failed);
  assert.ok(error instanceof ActorFailedError);
  assert.match(error.message, /Cannot pick a message: .* from 0 to 0, received 1$/);
});

Deno.test("a timer with a key is forgotten when its message is handled", async () => {
  const { system, isolate } = openWorld(new VirtualClock());
  await using _ = system;
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock" });
  const [a, b, plain] = [{ key: "a" }, { key: "b" }, {}].map((more) => ({ delayMs: 10, ...more }));
  system.send(clock, { type: "Set", timings: [a!, b!, plain!, { delayMs: 10, what: "last" }] });
  assert.equal((await system.ask(clock, { type: "Await", count: 4 })).length, 4);
  assert.equal(isolate().actors.get(clock.serial)!.timers.size, 0);
});

Deno.test("a timer has a copy of its message as of the moment in which it was set", async () => {
  await using system = openWorld(new VirtualClock()).system;
  const ringer = plain(`(ctx) => ({
    Go() {
      const message = { type: "Ring", n: 1 };
      ctx.after(5, message);
      message.n = 2;
      tell = ctx.deferReply();
    },
    Ring: ({ n }) => tell(n),
  }); let tell`);
  const ref = system.spawn(ringer, undefined, { id: "ringer" });
  assert.equal(await system.ask(ref, { type: "Go" }), 1);
});

Deno.test("timers and questions have a bound, and one more is refused in one sentence", async () => {
  const { system, isolate } = openWorld(new VirtualClock());
  await using _ = system;
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock" }), size = { value: 1_048_576 };
  await system.ask(clock, { type: "Read" });
  Object.defineProperty(isolate().actors.get(clock.serial)!.timers, "size", size);
  Object.defineProperty(isolate().asks, "size", size);
  const { message } = await thrownBy(system.ask(clock, { type: "Read" }));
  assert.match(message, /^Cannot ask "clock" for "Read": at most 1048576 questions must wait, rec/);
  system.send(clock, { type: "Set", timings: [{ delayMs: 1 }] });
  const { error } = await failureOf(system, clock);
  const full = /^Cannot start a timer: "clock" must have at most 1048576 of them, r/;
  assert.match(error.message, full);
});

Deno.test("an isolate keeps nothing of a watcher that has ended", async () => {
  const { system, isolate } = openWorld(new VirtualClock());
  await using _ = system;
  const ref = system.spawn(SERVER, undefined, { id: "server" });
  const watcher = system.spawn(RECORDER, undefined, { id: "recorder" });
  system.send(watcher, { type: "Watch", ref });
  await system.ask(watcher, { type: "Read" });
  assert.equal(isolate().watches.size, 1);
  await system.stop(watcher);
  assert.equal(isolate().watches.size, 0);
});

Deno.test("the same actors run under a virtual clock: an hour takes no time", async () => {
  await using system = openWorld(new VirtualClock()).system;
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock", isolate: "worker" });
  assert.equal(clock.isolate, 0, "without a transport all actors live in this isolate");
  const delays = [[3_600_000, "late"], [10, "soon"], [1000, "then"]] as const;
  const timings = delays.map(([delayMs, what]) => ({ delayMs, what }));
  system.send(clock, { type: "Set", timings });
  const server = system.spawn(SERVER, undefined, { id: "server" }), timeoutMs = 7_200_000;
  const error = await thrownBy(system.ask(server, { type: "Never" }, { timeoutMs }));
  assert.ok(error instanceof AskTimeoutError);
  assert.deepEqual(await system.ask(clock, { type: "Read" }), ["soon", "then", "late"]);
  assert.equal(await system.ask(clock, { type: "Elapsed" }), timeoutMs);
});

Deno.test("messages with a receipt have half of a mailbox, and it comes back however they end", async () => {
  const given: number[] = [], from = { id: "stranger", isolate: 7, serial: 1 };
  const network: Partial<IsolateRegistry> = {
    post(to, frame) {
      if (frame.kind !== "receipt") return;
      assert.deepEqual([to, frame.to], [7, from]);
      given.push((frame.message as unknown as { number: number }).number);
    },
    close: () => Promise.resolve(),
  };
  const { system, isolate } = openWorld(new VirtualClock(), { connect: () => network as never });
  await using _ = system;
  const to = system.spawn(RECORDER, undefined, { id: "recorder", capacity: 4 });
  await system.ask(to, { type: "Read" });
  const replyTo = { isolate: 7, ask: 5 };
  const send = (number: number, more: object = {}) => {
    const message = { type: "Note", what: number }, receipt = { type: "Handled", number };
    isolate().deliver({ kind: "message", to, from, lane: "data", message, receipt, ...more });
  };
  for (const number of [0, 1, 2]) send(number);
  assert.deepEqual(given, [2], "there is no room for the third");
  assert.equal(system.deadLetters.at(-1)!.reason, "no-room");
  assert.deepEqual(await system.ask(to, { type: "Read" }), [0, 1]);
  send(3, { replyTo });
  isolate().deliver({ kind: "withdraw", to, question: { ...replyTo, ask: 6 } });
  isolate().deliver({ kind: "withdraw", to, question: replyTo });
  assert.deepEqual(given, [2, 0, 1, 3], "those that are handled, and one that is taken back");
  send(4);
  const end = system.stop(to);
  send(5);
  await end;
  assert.deepEqual(given, [2, 0, 1, 3, 4, 5], "one that waits at a stop, and one that comes after");
  const server = system.spawn(SERVER, undefined, { id: "server" });
  const failing = plain(`(ctx, to) => ({
    Note() { ctx.ask(to, { type: "Never" }).catch(() => {}); throw new Error("out of luck"); },
  })`);
  const ref = system.spawn(failing, server, { id: "failing" }), failure = failureOf(system, ref);
  send(6, { to: ref });
  await failure;
  assert.deepEqual(given.slice(6), [6], "once where the receiver fails while it waits");
});

Deno.test("substreams of other seeds and names are others", () => {
  const draw = (seed: number, name: string, length: number) =>
    Array.from({ length }, substream(seed, name));
  const all = [draw(1, "a", 4), draw(2, "a", 4), draw(1, "b", 4), draw(12, "", 4), draw(1, "2", 4)];
  assert.equal(new Set(all.flat()).size, 20);
  assert.deepEqual(draw(1, "a", 4), all[0]);
});
