/**
 * What actors do that TypeScript would have refused: each mistake costs the one who makes it, and
 * nobody else.
 *
 * @module
 */

import assert from "node:assert/strict";
import {
  type ActorFailedError,
  type ActorSpec,
  createSystem,
  type Message,
  type SystemOptions,
} from "../../../../actors/runtime/mod.ts";
import { failureOf, thrownBy, until, withSystem } from "../harness.ts";
import { RECORDER, SERVER, type ServerMessage } from "../players.ts";
import { each, type Suite } from "./suite.ts";

export type AnyMessage = Message & Record<string, unknown>;

/** An actor in plain JavaScript. */
export function plain(factory: string): ActorSpec<undefined, AnyMessage> {
  const module = `data:text/javascript,${encodeURIComponent(`export const plain = ${factory}`)}`;
  return { module, export: "plain" };
}

const throwing = (key: string) =>
  Object.defineProperty({ type: "Note" }, key, {
    enumerable: true,
    get: () => {
      throw new RangeError("out of luck");
    },
  });

export const CARELESS: Suite = {
  ...each(
    [
      ["() => {}", /"plain" must be a function that returns handlers, received undefined/],
      ["async () => null", /"plain" must be a function that returns handlers, received null/],
      ["() => ({ Go: 3 })", /the handler of "Go" must be a function, received number/],
    ] as const,
    ([factory, wrong]) => [`a factory ${factory} fails its actor`, async ({ system, isolate }) => {
      const ref = system.spawn(plain(factory), undefined, { id: "x", isolate });
      const answer = thrownBy(system.ask(ref, { type: "Go" }));
      const { kind, error } = await failureOf(system, ref);
      assert.equal(kind, "init");
      assert.match(error.message, wrong);
      assert.match((await answer).message, wrong);
    }],
  ),

  ...each(
    ["null", "Object.create(null)", "Object.assign(Error(), { message: () => 1 })"],
    (thrown) => [`a handler that throws ${thrown} fails its actor`, async ({ system, isolate }) => {
      const spec = plain(
        `(ctx) => ({ async Go() { throw ${thrown}; }, Now() { throw ${thrown}; } })`,
      );
      for (const type of ["Go", "Now"]) {
        const ref = system.spawn(spec, undefined, { id: type, isolate });
        system.send(ref, { type });
        assert.deepEqual((await failureOf(system, ref)).handling, type);
      }
    }],
  ),

  "a message that is none is a dead letter, and its receiver goes on": async (
    { system, isolate },
  ) => {
    const ref = system.spawn(RECORDER, undefined, { id: "x", isolate });
    const wrong = [null, undefined, 3, "Note", {}, { type: 3 }, [], throwing("type")];
    for (const message of wrong) system.send(ref, message as never);
    for (const to of [null, {}, { id: "x" }, { ...ref, serial: "1" }]) {
      system.send(to as typeof ref, { type: "Read" });
    }
    system.send(ref, { type: "Note", what: 1 }, { lane: "urgent" as never });
    assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
    assert.equal(system.deadLetters.length, wrong.length + 5);
    assert.ok(system.deadLetters.every(({ reason }) => reason === "malformed"));
    assert.equal(system.deadLetters[0]?.type, "null");
  },

  "a message that cannot be cloned, for whatever reason, is a dead letter": async (
    { system, isolate },
  ) => {
    const ref = system.spawn(RECORDER, undefined, { id: "x", isolate });
    system.send(ref, throwing("what") as never);
    for (const transfer of [[undefined], [3], [{}], 3, null] as never[]) {
      system.send(ref, { type: "Note", what: 1 }, { transfer });
    }
    assert.deepEqual(await system.ask(ref, { type: "Read" }), []);
    assert.equal(system.deadLetters.length, 6);
    assert.ok(system.deadLetters.every(({ reason }) => reason === "not-cloneable"));
  },

  "actors too send anything without harm to themselves": async ({ system, isolate }) => {
    const spec = plain(`(ctx) => ({
      Go({ to }) {
        ctx.send(to, null);
        ctx.send(null, { type: "Note" });
        ctx.send(to, { type: "Note", get what() { throw new Error("out of luck"); } });
        ctx.send(to, { type: "Note", what: 1 }, { transfer: [undefined] });
        ctx.reply("sent");
      },
    })`);
    const to = system.spawn(RECORDER, undefined, { id: "to", isolate });
    const ref = system.spawn(spec, undefined, { id: "x", isolate });
    assert.equal(await system.ask(ref, { type: "Go", to }), "sent");
    await until(() => system.deadLetters.length === 4);
    const malformed = "malformed", clone = "not-cloneable";
    const reasons = system.deadLetters.map(({ reason }) => reason);
    assert.deepEqual(reasons, [malformed, malformed, clone, clone]);
  },

  ...each([
    'ctx.reply({ get x() { throw new Error("out of luck"); } })',
    "ctx.reply(1, { transfer: [undefined] })",
    "ctx.after(1, null)",
    "ctx.watch(null, () => ({ type: 'Down' }))",
    "ctx.watch({ ...ctx.self, serial: 999 }, () => null)",
    "ctx.spawn(null, undefined, { id: 'y' })",
    "ctx.doing(Object.create(null))",
  ], (mistake) => [`${mistake} fails the actor that does it`, async ({ system, isolate }) => {
    const ref = system.spawn(plain(`(ctx) => ({ Go() { ${mistake}; } })`), undefined, {
      id: "x",
      isolate,
    });
    const answer = system.ask(ref, { type: "Go" }).catch(() => {});
    assert.equal((await failureOf(system, ref)).actor, "x");
    await answer;
  }]),

  "a question that cannot be asked is refused with a reason": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "x", isolate });
    const refusal = async (...args: unknown[]) =>
      String(await thrownBy(system.ask(...args as Parameters<typeof system.ask>)));
    const never: ServerMessage = { type: "Never" };
    for (const timeoutMs of [NaN, -1, -Infinity, "1", null]) {
      assert.equal(
        await refusal(ref, never, { timeoutMs }),
        'RangeError: Cannot ask "x" for "Never": timeoutMs must be 0 or more, or Infinity, ' +
          `received ${timeoutMs}`,
      );
    }
    assert.match(
      await refusal(ref, null),
      /TypeError: Cannot ask "x": a question must be a record/,
    );
    assert.match(
      await refusal(null, never),
      /TypeError: Cannot ask: it must be an actor, received/,
    );
    assert.match(await refusal(ref, never, { lane: "urgent" }), /RangeError: .*lane must be/);
    assert.match(await refusal(ref, throwing("what")), /TypeError: .* for "Note": out of luck/);
  },

  "an answer that nobody waits for any more is a dead letter": async ({ system, isolate }) => {
    const ref = system.spawn(SERVER, undefined, { id: "x", isolate });
    await thrownBy(system.ask(ref, { type: "Later", n: 7 }, { timeoutMs: 1 }));
    system.send(ref, { type: "Now" });
    await until(() => system.deadLetters.length > 0);
    assert.deepEqual(system.deadLetters, [
      { from: "x", to: "system", type: "answer:Later", reason: "too-late" },
    ]);
  },

  ...each(
    ["begins", "did", "ends"],
    (
      part,
    ) => [
      `an observer that throws in ${part} is a failure of the system`,
      async ({ isolate, options }) => {
        const observer = {
          module: `data:text/javascript,export const observer = () => ({
        begins() {}, did() {}, ends() {}, closes() {}, ${part}() { throw new Error("out of luck"); },
      })`,
          export: "observer",
          init: undefined,
        };
        await withSystem({ ...options, observer }, async (system) => {
          const failed = thrownBy(system.failed);
          const ref = system.spawn(SERVER, undefined, { id: "x", isolate });
          const answer = system.ask(ref, { type: "Double", n: 1 }).catch((error) => error);
          const { failure } = await failed as ActorFailedError;
          assert.equal(failure.handling, "observer");
          assert.equal(failure.error.message, "out of luck");
          // In the isolate of the owner the actors go on; another isolate ends.
          const outcome = await answer;
          if (isolate === "local") assert.equal(outcome, 2);
        });
      },
    ],
  ),
};

Deno.test("a system is refused options that cannot be served", () => {
  const module = "data:text/javascript,",
    wrong: [unknown, RegExp][] = [
      [null, /TypeError: .*its options must be a record, received null/],
      [{ seed: NaN }, /RangeError: Cannot create a system: seed must be an integer, received NaN/],
      [{ seed: "1" }, /RangeError: .*seed must be an integer, received 1/],
      [{ stopGraceMs: -1 }, /RangeError: .*stopGraceMs must be a number of 0 or more, received -1/],
      [{ stopGraceMs: Infinity }, /RangeError: .*stopGraceMs must be .*received Infinity/],
      [{ choose: 1 }, /TypeError: .*choose must be a function, received number/],
      [{ now: {} }, /TypeError: .*now must be a function, received object/],
      [{ onDeadLetter: "log" }, /TypeError: .*onDeadLetter must be a function, received string/],
      [{ observer: () => {} }, /TypeError: .*observer must have the absolute URL of a module/],
      [{ observer: { module: "./a.ts", export: "a" } }, /TypeError: .*absolute URL of a module/],
      [{ transport: () => {} }, /TypeError: .*transport must be one, or several, .*function$/],
      [{ transport: [{ name: "", open() {} }] }, /RangeError: .*name of a transport must be one/],
      [{ transport: { name: "local", open() {} } }, /RangeError: .* none has yet, received local$/],
      [{ observer: { module } }, /TypeError: .*the export of observer must be a string/],
    ];
  for (const [options, error] of wrong) {
    assert.throws(() => createSystem(options as SystemOptions), error);
  }
});
