/** The order in which messages are handled, and what it depends on: mailboxes, choices, time and chance. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { headsOf } from "../../../actors/runtime/actor/actor.ts";
import type { Isolate } from "../../../actors/runtime/isolate/isolate.ts";
import type { Envelope } from "../../../actors/runtime/mailbox/envelope.ts";
import { Mailbox } from "../../../actors/runtime/mailbox/mailbox.ts";
import { Ring } from "../../../actors/runtime/mailbox/ring.ts";
import {
  ActorFailedError,
  AskTimeoutError,
  type Candidate,
  type Choose,
  createSystem,
  type Lane,
} from "../../../actors/runtime/mod.ts";
import { openSystem, type World } from "../../../actors/runtime/root.ts";
import type { IsolateRegistry } from "../../../actors/runtime/transports/registry.ts";
import { type Clock, realClock } from "../../../actors/runtime/world/clock.ts";
import { substream } from "../../../actors/runtime/world/random.ts";
import { atDepth } from "../../depth.ts";
import { thrownBy } from "./harness.ts";
import { CLOCKWORK, inOrder, plain, RECORDER, SENDER, type SenderNote, SERVER } from "./players.ts";

const RUNS = { numRuns: atDepth(25, 250) };

Deno.test("a ring does what an array does, whatever is pushed, shifted and removed", () => {
  const operation = fc.oneof(
    { weight: 3, arbitrary: fc.record({ push: fc.nat(5) }) },
    { weight: 2, arbitrary: fc.constant("shift" as const) },
    { weight: 1, arbitrary: fc.record({ remove: fc.nat(5) }) },
  );
  fc.assert(fc.property(fc.array(operation, { size: "large" }), (operations) => {
    const ring = new Ring<number>(), model: number[] = [];
    for (const one of operations) {
      if (one === "shift") assert.equal(ring.shift(), model.shift());
      else if ("push" in one) {
        ring.push(one.push);
        model.push(one.push);
      } else {
        const index = model.indexOf(one.remove);
        assert.equal(ring.remove(one.remove), index >= 0);
        if (index >= 0) model.splice(index, 1);
      }
      assert.equal(ring.length, model.length);
      assert.equal([...ring].join(), model.join());
      assert.deepEqual([ring.at(0), ring.at(model.length)], [model[0], undefined]);
    }
  }));
});

const lane = fc.constantFrom<Lane>("control", "data");

/** What a mailbox gets: of whom, from which isolate, and in which lane. */
const contents = fc.array(fc.record({ serial: fc.nat(2), isolate: fc.nat(1), lane }), {
  size: "medium",
});

type Contents = typeof contents extends fc.Arbitrary<infer T> ? T : never;

function fill(mailbox: Mailbox, list: Contents): Envelope[] {
  return list.map(({ serial, isolate, lane }, seq) => {
    const from = { id: `sender-${serial}`, isolate, serial };
    const envelope: Envelope = { seq, nth: 0, lane, from, message: { type: "Note" } };
    mailbox.push(envelope);
    return envelope;
  });
}

const ages = (all: Iterable<Envelope>) => Array.from(all, ({ seq }) => seq).join();

const senderOf = ({ from: { isolate, serial }, lane }: Envelope) => `${isolate}/${serial} ${lane}`;

Deno.test("a mailbox gives control before data, and each lane in order", () => {
  fc.assert(fc.property(contents, fc.boolean(), (list, isDrained) => {
    const mailbox = new Mailbox(), all = fill(mailbox, list), taken: Envelope[] = [];
    const plain = (["control", "data"] as const).flatMap((lane) =>
      all.filter((one) => one.lane === lane)
    );
    assert.equal(ages(mailbox), ages(plain));
    if (isDrained) taken.push(...mailbox.drain());
    for (let head = mailbox.head(); head; head = mailbox.head()) {
      assert.ok(mailbox.remove(head));
      taken.push(head);
    }
    assert.equal(ages(taken), ages(plain));
    assert.equal(mailbox.length, 0);
  }));
});

Deno.test("the heads of a mailbox are the oldest messages of each sender and lane, in plain order", () => {
  fc.assert(fc.property(contents, fc.array(fc.nat(), { minLength: 1 }), (list, choices) => {
    const mailbox = new Mailbox();
    let left = fill(mailbox, list);
    for (let count = 0; left.length > 0; count++) {
      const heads = mailbox.heads(), lanes = ["control", "data"];
      const oldest = lanes.flatMap((lane) =>
        Map.groupBy(left.filter((one) => one.lane === lane), senderOf).values()
          .map(([first]) => first!).toArray()
      );
      assert.equal(ages(heads), ages(oldest));
      assert.equal(heads[0], mailbox.head());
      const chosen = heads[choices[count % choices.length]! % heads.length]!;
      assert.ok(mailbox.remove(chosen));
      left = left.filter((one) => one !== chosen);
      assert.equal(mailbox.length, left.length);
    }
    assert.deepEqual(mailbox.heads(), []);
  }));
});

/** Three actors send notes to a fourth; gives the notes in the order of their handling. */
async function play(lanes: readonly Lane[], choose?: Choose): Promise<readonly SenderNote[]> {
  await using system = createSystem(choose ? { choose } : {});
  const to = system.spawn(RECORDER, undefined, { id: "recorder" });
  const ids = ["a", "b", "c"];
  for (const id of ids) system.send(system.spawn(SENDER, { to, lanes }, { id }), { type: "Go" });
  const count = ids.length * lanes.length;
  return await system.ask(to, { type: "Wait", count });
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

Deno.test("the candidates kept from step to step are those that a look at every actor finds", () =>
  fc.assert(
    fc.asyncProperty(lanes, fc.integer(), async (lanes, seed) => {
      const next = substream(seed, "choose");
      let checked = 0;
      const choose: Choose = (candidates) => {
        const all = [...world.isolate().actors.values()].flatMap(headsOf);
        const rank = ({ lane, seq }: { lane: Lane; seq: number }) =>
          (lane === "control" ? 0 : 2 ** 52) + seq;
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

Deno.test("candidates say for whom, from whom, what and as which they are", async () => {
  const seen: Candidate[] = [];
  await play(["data", "control", "control"], (candidates) => {
    seen.push(...candidates);
    return candidates.length - 1;
  });
  const all = seen.map((one) => `${one.from}#${one.nth} ${one.lane} ${one.type} ${one.actor}`);
  const some = [
    "system#0 control init recorder",
    "system#1 data Go b",
    "b#2 control Note recorder",
  ];
  assert.deepEqual(some.filter((one) => !all.includes(one)), []);
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

/** A clock that goes on only when nothing can run. */
function virtualClock(): Clock {
  let now = 0, count = 0;
  const timers = new Map<number, { at: number; fire: () => void }>();
  return {
    now: () => now,
    after(delayMs, fire) {
      const id = count++;
      timers.set(id, { at: now + delayMs, fire });
      return () => void timers.delete(id);
    },
    advance() {
      const [next] = [...timers].sort(([i, a], [j, b]) => a.at - b.at || i - j);
      if (!next || next[1].at === Infinity) return false;
      timers.delete(next[0]);
      now = next[1].at;
      next[1].fire();
      return true;
    },
  };
}

Deno.test("a timer with a key is forgotten when its message is handled", async () => {
  const { system, isolate } = openWorld(virtualClock());
  await using _ = system;
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock" });
  const [a, b, plain] = [{ key: "a" }, { key: "b" }, {}].map((more) => ({ delayMs: 10, ...more }));
  system.send(clock, { type: "Set", timings: [a!, b!, plain!, { delayMs: 10, what: "last" }] });
  assert.equal((await system.ask(clock, { type: "Await", what: "last" })).length, 4);
  assert.equal(isolate().actors.get(clock.serial)!.timers.size, 0);
});

Deno.test("a timer has a copy of its message as of the moment in which it was set", async () => {
  await using system = openWorld(virtualClock()).system;
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

Deno.test("an isolate keeps nothing of a watcher that has ended", async () => {
  const { system, isolate } = openWorld(virtualClock());
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
  await using system = openWorld(virtualClock()).system;
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

Deno.test("messages with a credit have half of a mailbox, and give it back however they end", async () => {
  const given: number[] = [];
  const network: Partial<IsolateRegistry> = {
    post: (_, frame) => void (frame.kind === "credit" && given.push(frame.credit.number)),
    close: () => Promise.resolve(),
  };
  const { system, isolate } = openWorld(virtualClock(), { connect: () => network as never });
  await using _ = system;
  const to = system.spawn(RECORDER, undefined, { id: "recorder", capacity: 4 });
  await system.ask(to, { type: "Read" });
  const from = { id: "stranger", isolate: 7, serial: 1 }, replyTo = { isolate: 7, ask: 5 };
  const send = (number: number, more: object = {}) => {
    const message = { type: "Note", what: number }, credit = { isolate: 7, number };
    isolate().deliver({ ...{ kind: "message", to, from, lane: "data", message, credit }, ...more });
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
});

const draw = (seed: number, name: string, count: number) => {
  const next = substream(seed, name);
  return Array.from({ length: count }, next);
};

Deno.test("substreams of other seeds and names are others", () => {
  const all = [draw(1, "a", 4), draw(2, "a", 4), draw(1, "b", 4), draw(12, "", 4), draw(1, "2", 4)];
  assert.equal(new Set(all.flat()).size, 20);
  assert.deepEqual(draw(1, "a", 4), all[0]);
});
