import assert from "node:assert/strict";
import { CHILD_SUPERVISOR, type Message, spawnPool } from "../../../../actors/runtime/mod.ts";
import type { AnswerFrame } from "../../../../actors/runtime/transports/wire.ts";
import { holdingsOf } from "../../../../actors/runtime/transports/guard/holdings.ts";
import fc from "../../../fast_check.ts";
import { atDepth } from "../../../depth.ts";
import { plain } from "../players.ts";
import { FORGERIES } from "./forgeries.ts";
import { HEARD, LISTENER, type Scene, settled, withImpostor } from "./impostor.ts";

/** Asks the impostor something from the root; the answer is noted. */
function question({ system, self, signal }: Scene): unknown[] {
  const answers: unknown[] = [];
  const note = (answer: unknown) => void answers.push(answer);
  system.ask(self, { type: "Ask" }, { signal }).then(note, (error: Error) => note(error.message));
  return answers;
}

for (const [kind, forgeries] of Object.entries(FORGERIES)) {
  Deno.test(`forged ${kind} frames end their isolate, are denied or change nothing`, async () => {
    for (const [forgery, outcome, frame] of forgeries) {
      await withImpostor(async (scene) => {
        question(scene);
        scene.impostor.say(frame(scene));
        await settled();
        const { impostor, denied, ends } = scene;
        const other = denied.length > 0 ? "denied" : "passes";
        assert.equal(impostor.isEnded ? "ends" : other, outcome, forgery);
        if (outcome === "ends") {
          assert.match(ends.join(), /^the impostor of "package \d+" has ended: \w.*must/);
        }
      });
    }
  });
}

/** Values that no field expects, and some that a few do. */
const JUNK = [
  ...[undefined, null, true, -1, 0, 1, 1.5, NaN, 2 ** 53, "", "__proto__", "constructor"],
  ...["message", "x".repeat(2000), [], {}, [[]], new Map(), new Error("x"), new Uint8Array(3), 7n],
];

const ALL = Object.values(FORGERIES).flat();

/** A frame with one of its parts replaced. */
function spoilt(frame: unknown, steps: readonly number[], junk: unknown): unknown {
  const [step, ...others] = steps;
  if (step === undefined || typeof frame !== "object" || frame === null) return junk;
  const keys = Object.keys(frame), key = keys[step % (keys.length + 1)];
  if (key === undefined) return { ...frame, extra: junk };
  const whole = frame as Record<string, unknown>;
  const copy = Array.isArray(frame) ? [...frame] : { ...frame };
  return Object.assign(copy, { [key]: spoilt(whole[key], others, junk) });
}

Deno.test("the root survives random frames of an isolate, and other actors get none of them", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          which: fc.nat(ALL.length - 1),
          steps: fc.array(fc.nat(9), { maxLength: 4 }),
          junk: fc.oneof(fc.constantFrom(...JUNK), fc.anything({ withMap: true, withSet: true })),
          isWhole: fc.boolean(),
        }),
        { minLength: 1, maxLength: 30 },
      ),
      (said) =>
        withImpostor(async (first) => {
          let scene = first;
          question(scene);
          for (const { which, steps, junk, isWhole } of said) {
            const [, , frame] = ALL[which]!, whole = frame(scene);
            scene.impostor.say(isWhole ? whole : spoilt(whole, steps, junk));
            if (!scene.impostor.isEnded) continue;
            scene = scene.again();
            question(scene);
          }
          await settled();
          const { system, friend, victim } = scene;
          assert.deepEqual(await system.ask(friend, { type: "Echo" }), { type: "Echo" });
          const { refs } = holdingsOf(HEARD.friend);
          assert.ok(refs.every(({ serial, isolate }) => isolate > 0 || serial === friend.serial));
          assert.notEqual(victim.serial, friend.serial);
        }),
    ),
    { numRuns: atDepth(20, 500) },
  ));

Deno.test("an isolate sees neither the other actors nor the senders of its messages", () =>
  withImpostor(async (scene) => {
    const { system, self, friend, stranger, impostor } = scene;
    const { places, observer, launch } = impostor.boot;
    assert.deepEqual({ places, observer }, { places: [], observer: undefined });
    assert.equal(launch.parent.serial, Number.MAX_SAFE_INTEGER);
    const answers = question(scene);
    await system.stop(stranger);
    await settled();
    const kinds = impostor.got.map(({ kind }) => kind).filter((kind) => kind !== "subscribe");
    assert.deepEqual(kinds, ["watch", "message"]);
    const [asked] = impostor.got.filter((frame) => frame.kind === "message");
    assert.equal(asked!.from.serial, Number.MAX_SAFE_INTEGER);
    // A question that is handed on goes in the name of its asker.
    impostor.say({ kind: "forwarded", ask: 0, to: friend });
    const message = { type: "Echo", n: 1 }, { from, replyTo } = asked!;
    impostor.say({ kind: "message", to: friend, from, lane: "data", message, replyTo });
    await settled();
    assert.deepEqual([answers, scene.ends, self.id], [[message], [], "package 1"]);
  }));

Deno.test("a second answer to a question ends its isolate", () =>
  withImpostor(async (scene) => {
    const answers = question(scene), outcome = { status: "answered", value: 1 };
    for (let n = 0; n < 2; n++) scene.impostor.say({ kind: "answer", ask: 0, outcome });
    await settled();
    assert.deepEqual(answers, [1]);
    assert.match(scene.ends.join(), /must not answer what it was not asked, or has answered$/);
  }));

Deno.test("an isolate may use an address once it was sent to it; before, it is refused with a reason", () =>
  withImpostor(async ({ system, self, friend, impostor, denied }) => {
    const late = system.spawn(LISTENER, undefined, { id: "late" });
    const note = { kind: "message", from: self, lane: "data", message: { type: "Note" } };
    impostor.say({ ...note, to: late });
    assert.equal(denied.length, 1);
    const replyTo = { isolate: self.isolate, ask: 0 };
    impostor.say({ ...note, to: friend, message: { type: "Echo", ref: late }, replyTo });
    await settled();
    assert.equal(denied.at(-1)!.what, "reference");
    const { outcome } = impostor.got.at(-1) as AnswerFrame;
    const why = '"package 1" must have been given the address of "late"';
    assert.deepEqual(outcome, { status: "unsent", why });
    system.send(self, { type: "Here", late } as Message);
    impostor.say({ ...note, to: late });
    await settled();
    assert.equal(HEARD.late!.length, 1);
    assert.deepEqual(system.deadLetters.map(({ reason }) => reason), ["denied", "denied"]);
  }));

Deno.test("what a receiver does not handle is a dead letter, counts against its sender and harms nobody", () =>
  withImpostor(async ({ system, self, impostor, denied }) => {
    const spec = plain("(ctx) => ({ Echo: () => ctx.reply('echo') })"), init = undefined;
    const strict = system.spawn(spec, init, { id: "strict" });
    const pool = spawnPool(system, { spec, init, size: 1, intensity: 0 }, { id: "pool" });
    const nursery = system.spawn(CHILD_SUPERVISOR, { children: [] }, { id: "nursery" });
    let count = 0;
    for (
      const [to, types, by = to.id] of [
        [strict, ["Nothing", "toString", "__proto__", "init", "answer:Echo"]],
        [pool, ["Nothing", "toString"], "pool-1"],
        [pool, ["~broadcast", "~handled", "~down", "~restart"]],
        [nursery, ["Nothing", "StartChild", "StopChild", "Down", "Restart"]],
      ] as const
    ) {
      system.send(self, { type: "Here", to } as Message);
      for (const type of types) {
        const message = { type, child: { id: "a", spec, init }, message: { type: "Nothing" } };
        const replyTo = { isolate: self.isolate, ask: count++ }, lane = "control";
        impostor.say({ kind: "message", to, from: self, lane, message, replyTo });
        await settled();
        assert.deepEqual(denied.at(-1), {
          type: "denied",
          actor: self.id,
          what: "message",
          on: by,
        });
        const letter = { from: self.id, to: by, type, reason: "malformed" };
        assert.deepEqual([denied.length, system.deadLetters.at(-1)], [count, letter]);
        const { outcome } = impostor.got.findLast(({ kind }) => kind === "answer") as AnswerFrame;
        assert.match((outcome as { why: string }).why, /^(its type|".+") must /);
      }
    }
    for (const to of [strict, pool]) assert.equal(await system.ask(to, { type: "Echo" }), "echo");
    assert.deepEqual(await system.ask(nursery, { type: "Children" }), []);
    assert.equal(impostor.isEnded, false);
  }));

Deno.test("an isolate that floods an actor ends, and the actor goes on", () =>
  withImpostor(async ({ system, self, friend, impostor, ends }) => {
    const note = { kind: "message", to: friend, from: self, lane: "data" };
    for (let n = 0; n <= 65_536; n++) impostor.say({ ...note, message: { type: "Note", n } });
    await settled();
    assert.match(ends.join(), /too many of its messages must not wait at once/);
    assert.deepEqual(await system.ask(friend, { type: "Echo" }), { type: "Echo" });
    assert.equal(HEARD.friend!.length, 65_537);
  }));

Deno.test("half of a small mailbox is kept for the program, and messages that are handled free their places", () =>
  withImpostor(async ({ system, self, impostor, ends }) => {
    const small = system.spawn(LISTENER, undefined, { id: "small", capacity: 8 });
    system.send(self, { type: "Here", small } as Message);
    const message = { type: "Note" };
    for (let round = 0; round < 700; round++) {
      for (let n = 0; n < 100; n++) {
        impostor.say({ kind: "message", to: small, from: self, lane: "data", message });
      }
      for (let n = 0; round === 0 && n < 4; n++) system.send(small, message);
      if (round % 10 === 0) await settled();
    }
    await settled();
    assert.deepEqual(ends, []);
    assert.deepEqual([...new Set(system.deadLetters.map(({ reason }) => reason))], ["no-room"]);
    assert.ok(HEARD.small!.length > 8);
    assert.deepEqual(await system.ask(small, { type: "Echo" }), { type: "Echo" });
  }));
