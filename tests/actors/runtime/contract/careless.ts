/**
 * Mistakes of actors that TypeScript would have refused: each affects the actor that makes it, and
 * no other.
 *
 * @module
 */

import assert from "node:assert/strict";
import type { ActorFailedError, ActorSpec } from "../../../../actors/runtime/mod.ts";
import { failureOf, thrownBy, until, withSystem } from "../harness.ts";
import { plain, RECORDER, SERVER } from "../players.ts";
import { throwing } from "./messages.ts";
import type { Suite } from "./suite.ts";

/** Factories that make no handlers. */
const FACTORIES = [
  ["() => {}", /"plain" must be a function that returns handlers, received undefined/],
  ["async () => null", /"plain" must be a function that returns handlers, received null/],
  ["() => ({ Go: 3 })", /the handler of "Go" must be a function, received number/],
] as const;

const MISTAKES = [
  "throw null",
  "ctx.stop(); throw null",
  "throw Object.create(null)",
  "throw Object.assign(Error(), { message: () => 1 })",
  "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
  'ctx.reply({ get x() { throw new Error("out of luck"); } })',
  "ctx.reply(1, { transfer: [undefined] })",
  "ctx.after(1, null)",
  "ctx.after(-1, { type: 'Go' })",
  "ctx.watch(null, () => ({ type: 'Down' }))",
  "ctx.watch({ ...ctx.self, serial: 999 }, () => null)",
  "ctx.spawn(null, undefined, { id: 'y' })",
  "ctx.setActivity(Object.create(null))",
];

/** Invalid arguments of `spawn()`. */
const SPAWNS = [
  [{ id: "" }, /RangeError: Cannot spawn "": id must be/],
  [{ id: "system" }, /RangeError: Cannot spawn "system": id must be unique/],
  [{ id: Symbol("s") }, /RangeError: Cannot spawn "Symbol\(s\)": id must be a string/],
  [{ capacity: 0 }, /RangeError: Cannot spawn "x": capacity must be a positive integer/],
  [{ capacity: 1.5 }, /RangeError: Cannot spawn "x": capacity must be a positive integer/],
  [
    { isolate: "thread" },
    /RangeError: .* local, worker(, process)? or (process|tcp|mpi|nats), received thread/,
  ],
  [{ memoryLimitMb: NaN }, /RangeError: Cannot spawn "x": memoryLimitMb must be a positive/],
  [{ isolate: "process", memoryLimitMb: 0.5 }, /RangeError: .* integer, received 0\.5$/],
  [{ isolate: "local", memoryLimitMb: 8 }, /TypeError: .*only a process must have a/],
  [{ isolate: "worker", memoryLimitMb: 8 }, /TypeError: .*only a process must have a/],
  [{ transfer: [undefined] }, /TypeError: Cannot spawn "x": transfer must be an array of/],
  [{ init: () => {} }, /TypeError: Cannot spawn "x": init must be structured-cloneable/],
  [{ init: throwing("x") }, /TypeError: .*: init must be structured-cloneable.*mine/],
] as const;

export const CARELESS: Suite = {
  "a factory that makes no handlers fails its actor": async ({ system, spawn, few }) => {
    for (const [factory, wrong] of few(FACTORIES)) {
      const ref = spawn(plain(factory)), answer = thrownBy(system.ask(ref, { type: "Go" }));
      const { kind, error } = await failureOf(system, ref);
      assert.equal(kind, "init");
      assert.match(error.message, wrong);
      assert.match((await answer).message, wrong);
    }
  },

  "a mistake in a handler fails its actor": async ({ system, spawn, few }) => {
    for (const mistake of few(MISTAKES)) {
      for (const how of few(["async", ""])) {
        const ref = spawn(plain(`(ctx) => ({ ${how} Go() { ${mistake}; } })`));
        const answer = system.ask(ref, { type: "Go" }).catch(() => {});
        const { actor, handling } = await failureOf(system, ref);
        const doing = mistake.includes("999") ? "end of plain" : "Go";
        assert.deepEqual([actor, handling], ["plain", doing], mistake);
        await answer;
      }
    }
  },

  "actors too send anything without harm to themselves": async ({ system, spawn }) => {
    const spec = plain(`(ctx) => ({
      Go({ to }) {
        ctx.send(to, null);
        ctx.send(null, { type: "Note" });
        ctx.send(to, { type: "Note", get what() { throw new Error("out of luck"); } });
        ctx.send(to, { type: "Note", what: 1 }, { transfer: [undefined] });
        ctx.reply("sent");
      },
    })`);
    const to = spawn(RECORDER), ref = spawn(spec);
    assert.equal(await system.ask(ref, { type: "Go", to }), "sent");
    await until(() => system.deadLetters.length === 4);
    const reasons = system.deadLetters.map(({ reason }) => reason);
    assert.equal(reasons.join(), "malformed,malformed,not-cloneable,not-cloneable");
  },

  "an invalid spawn is refused immediately": async ({ system, isolate, spawn }) => {
    const refused = (spec: unknown, options: unknown, error: RegExp) => {
      const { init, ...rest } = (options ?? {}) as { init?: unknown };
      const given = options && rest as { id: string };
      assert.throws(() => system.spawn(spec as ActorSpec, init as never, given as never), error);
    };
    for (const [over, error] of SPAWNS) refused(SERVER, { id: "x", isolate, ...over }, error);
    for (const [spec, options] of [[SERVER, undefined], [SERVER, null], [null, { id: "x" }]]) {
      refused(spec, options, /^TypeError: Cannot spawn.* must be a record, received /);
    }
    const relative = { module: "./here.ts", export: "a" };
    refused(relative, { id: "x" }, /TypeError: .*absolute URL, received \.\/here\.ts/);
    assert.equal(await system.ask(spawn(SERVER, { id: "x" }), { type: "Double", n: 1 }), 2);
  },

  "an observer that throws is a failure of the system": async ({ isolate, options, few }) => {
    for (const part of few(["did", "begins", "ends"])) {
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
        const { failure: { handling, error } } = await failed as ActorFailedError;
        assert.deepEqual([handling, error.message], ["observer", "out of luck"]);
        // In the isolate of the owner the actors keep running; another isolate ends.
        const outcome = await answer;
        if (isolate === "local") assert.equal(outcome, 2);
      });
    }
  },
};
