/** The determinism guard: clocks, random numbers and external access are forbidden to actors. */

import assert from "node:assert/strict";
import nodeTimers from "node:timers";
import {
  exempt,
  FORBIDDEN_GLOBALS,
  type ForbiddenGlobal,
} from "../../../actors/simulation/determinism_guard.ts";
import { simulate } from "../../../actors/simulation/simulate.ts";
import { ROGUE, spawnText, specOf } from "./players.ts";

const HERE = new Map(FORBIDDEN_GLOBALS.map((one) => [one.token, propertyOf(one)]));

/** The property of a token, on whichever object it is. */
function propertyOf({ token, holder }: ForbiddenGlobal): PropertyDescriptor | undefined {
  const path = token.split("."), name = path.pop()!;
  let object = (holder?.split(".") ?? path).reduce<unknown>(
    (object, name) => (object as Record<string, unknown> | undefined)?.[name],
    globalThis,
  ) as object | null;
  for (; object; object = Object.getPrototypeOf(object)) {
    const found = Object.getOwnPropertyDescriptor(object, name);
    if (found) return found;
  }
}

/** Returns the failure of a run in which a rogue actor receives a message. */
const failureOf = async (message: { type: string; token?: string }, options = {}) =>
  (await simulate(options, async ({ system, idle }) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, message);
    await idle();
  })).failure;

/** Returns an actor's answer to "Go". */
const answerOf = (text: string, type = "Go") =>
  simulate({}, ({ system }) => system.ask(spawnText(system, "user", text), { type }));

Deno.test("in a handler every forbidden global throws, with the actor and the token", async () => {
  for (const { token } of FORBIDDEN_GLOBALS) {
    assert.ok(HERE.get(token), `${token} must exist here`);
    for (const type of ["Use", "UseLater", "Swallow"]) {
      const failure = await failureOf({ type, token });
      assert.equal(failure?.kind, "determinism", `${type} ${token}`);
      assert.ok(failure.message.startsWith(`Cannot call ${token}: actor "rogue" must`));
    }
  }
});

Deno.test("after a simulation, also a failed one, the globals are restored", async () => {
  await failureOf({ type: "Throw" });
  for (const forbidden of FORBIDDEN_GLOBALS) {
    assert.deepEqual(propertyOf(forbidden), HERE.get(forbidden.token), forbidden.token);
  }
  assert.ok(new Date() instanceof Date);
});

Deno.test("timers are forbidden also when they are imported from Node.js", async () => {
  const timers = ["setTimeout(() => {}, 1)", "setInterval(() => {}, 1)", "setImmediate(() => {})"];
  for (const call of [...timers, "later(1)"]) {
    const module = `data:text/javascript,
      import { setImmediate, setInterval, setTimeout } from "node:timers";
      import { setTimeout as later } from "node:timers/promises";
      export const hasty = () => ({ Go() { ${call}; } });`;
    const { failure } = await simulate({}, ({ system }) => {
      const hasty = system.spawn(specOf(module, "hasty"), undefined, { id: "hasty" });
      return system.ask(hasty, { type: "Go" });
    });
    assert.match(failure!.message, /^Cannot call node:timers.set\w+: actor "hasty" must/, call);
    await new Promise((resolve) => nodeTimers.setTimeout(resolve, 1));
  }
});

Deno.test("dates and formats with arguments are plain values, and allowed", async () => {
  const { value } = await answerOf(`(ctx) => ({ Go() {
    const year = new Intl.DateTimeFormat("en", { year: "numeric" }).format(new Date(1e11));
    ctx.reply([new Date(0).getTime(), new Date(0) instanceof Date, year]);
  } })`);
  assert.deepEqual(value, [0, true, "1973"]);
});

Deno.test("the scenario itself may look at the clock", async () => {
  const { value } = await simulate({}, () => performance.now() > 0 && Math.random() < 1);
  assert.equal(value, true);
});

Deno.test("exempt code may use everything until its promise settles", async () => {
  const device = {
    now: () => exempt(() => performance.now()),
    run: () => exempt(() => Promise.resolve().then(() => performance.now())),
    fail: () => exempt(() => assert.fail()),
  };
  const { device: before } = globalThis as { device?: unknown };
  Object.assign(globalThis, { device });
  const user = `(ctx) => ({
    async Run() { device.now(); await device.run(); ctx.reply("ran"); },
    async RunThenLook() { await device.run(); performance.now(); },
    NowThenLook() { device.now(); performance.now(); },
    FailThenLook() { try { device.fail(); } catch { performance.now(); } },
  })`;
  assert.equal((await answerOf(user, "Run")).value, "ran");
  for (const type of ["RunThenLook", "NowThenLook", "FailThenLook"]) {
    assert.equal((await answerOf(user, type)).failure?.kind, "determinism", type);
  }
  Object.assign(globalThis, { device: before });
});

Deno.test("modules that are trusted may do everything", async () => {
  const message = { type: "Use", token: "Math.random" };
  const trusted = [new URL("./players.ts", import.meta.url).href];
  assert.equal(await failureOf(message, { trusted }), undefined);
  assert.ok(await failureOf(message, { trusted: ["npm:"] }));
});

Deno.test("the first evaluation of a module is not restricted", async () => {
  const { value, failure } = await answerOf(`(ctx) => ({ Go() { ctx.reply(start > 0); } });
    const start = Date.now(); // ${crypto.randomUUID()}`);
  assert.deepEqual([value, failure], [true, undefined]);
});
