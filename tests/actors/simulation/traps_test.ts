import assert from "node:assert/strict";
import nodeTimers from "node:timers";
import {
  exempt,
  explore,
  simulate,
  TRAPPED,
  type Trapped,
} from "../../../actors/simulation/mod.ts";
import { ROGUE, type RogueMessage } from "./players.ts";

const HERE = new Map(TRAPPED.map((trapped) => [trapped.token, propertyOf(trapped)]));

/** The property that stands for a token, wherever it is. */
function propertyOf({ token, holder }: Trapped): PropertyDescriptor | undefined {
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

async function tell(message: RogueMessage, options = {}) {
  const { failure } = await simulate(options, async ({ system, idle }) => {
    const rogue = system.spawn(ROGUE, undefined, { id: "rogue" });
    system.send(rogue, message);
    await idle();
  });
  return failure;
}

for (const { token } of TRAPPED) {
  Deno.test(`in a handler ${token} throws, and names actor and token`, async () => {
    assert.ok(HERE.get(token), `${token} must exist here`);
    for (const type of ["Use", "UseLater", "Swallow"] as const) {
      const failure = await tell({ type, token });
      assert.equal(failure?.kind, "determinism", type);
      assert.ok(failure.message.startsWith(`Cannot call ${token}: actor "rogue" must`));
    }
  });
}

Deno.test("after a simulation everything is as it was, also after a failure", async () => {
  await tell({ type: "Throw" });
  for (const trapped of TRAPPED) {
    assert.deepEqual(propertyOf(trapped), HERE.get(trapped.token), trapped.token);
  }
  assert.ok(new Date() instanceof Date);
});

for (
  const [name, call] of [
    ["setTimeout", "setTimeout(() => {}, 1)"],
    ["setInterval", "setInterval(() => {}, 1)"],
    ["setImmediate", "setImmediate(() => {})"],
    ["timers/promises", "later(1)"],
  ] as const
) {
  Deno.test(`${name} is trapped for those who import it from Node.js too`, async () => {
    const module = `data:text/javascript,
      import { setImmediate, setInterval, setTimeout } from "node:timers";
      import { setTimeout as later } from "node:timers/promises";
      export const hasty = () => ({ Go() { ${call}; } });`;
    const { failure } = await simulate({}, async ({ system, idle }) => {
      system.send(
        system.spawn<undefined, { type: "Go" }>({ module, export: "hasty" }, undefined, {
          id: "hasty",
        }),
        { type: "Go" },
      );
      await idle();
    });
    assert.match(failure!.message, /^Cannot call node:timers.set\w+: actor "hasty" must/);
    await new Promise((resolve) => nodeTimers.setTimeout(resolve, 1));
  });
}

Deno.test("two runs of one order must return the same too", async () => {
  let runs = 0;
  const { failed } = await explore({ runs: 10 }, () => ({ run: runs++ }));
  assert.equal(failed?.failure.kind, "diverged");
  assert.equal(
    failed.failure.message,
    "two runs of the same order return { run: 0 }, then { run: 1 }",
  );
  assert.equal((await explore({ runs: 10, isRepeated: false }, () => runs++)).failed, undefined);
});

Deno.test("a run that fails only when it is repeated has diverged", async () => {
  let runs = 0;
  const { failed } = await explore({ runs: 10 }, () => {
    if (runs++ === 1) throw new RangeError("out of luck");
  });
  assert.equal(failed?.failure.kind, "diverged");
  assert.match(failed.failure.message, /return undefined, then out of luck$/);
});

Deno.test("dates with arguments are plain values, and allowed", async () => {
  const module = `data:text/javascript,export const calendar = (ctx) => ({
    Read() {
      const year = new Intl.DateTimeFormat("en", { year: "numeric" }).format(new Date(1e11));
      ctx.reply([new Date(0).getTime(), new Date(0) instanceof Date, year]);
    },
  })`;
  const { value } = await simulate({}, ({ system }) => {
    const calendar = system.spawn<undefined, { type: "Read" }>(
      { module, export: "calendar" },
      undefined,
      { id: "calendar" },
    );
    return system.ask(calendar, { type: "Read" });
  });
  assert.deepEqual(value, [0, true, "1973"]);
});

Deno.test("the scenario itself may look at the clock", async () => {
  const run = await simulate({}, async ({ idle }) => {
    await idle();
    return performance.now() > 0 && Math.random() < 1;
  });
  assert.equal(run.value, true);
});

Deno.test("what is exempt may do everything, for as long as its promise runs", async () => {
  const device = {
    now: () => exempt(() => performance.now()),
    run: () => exempt(() => Promise.resolve().then(() => performance.now())),
  };
  const { device: before } = globalThis as { device?: unknown };
  Object.assign(globalThis, { device });
  const module = `data:text/javascript,export const user = (ctx) => ({
    async Run() { device.now(); await device.run(); ctx.reply("ran"); },
    async RunThenLook() { await device.run(); performance.now(); },
  })`;
  const play = (type: "Run" | "RunThenLook") =>
    simulate({}, ({ system }) => {
      const user = system.spawn<undefined, { type: "Run" | "RunThenLook" }>(
        { module, export: "user" },
        undefined,
        { id: "user" },
      );
      return system.ask(user, { type });
    });
  assert.equal((await play("Run")).value, "ran");
  assert.equal((await play("RunThenLook")).failure?.kind, "determinism");
  Object.assign(globalThis, { device: before });
});

Deno.test("modules that are trusted may do everything", async () => {
  const trusted = [new URL("./players.ts", import.meta.url).href];
  assert.equal(await tell({ type: "Use", token: "Math.random" }, { trusted }), undefined);
  assert.ok(await tell({ type: "Use", token: "Math.random" }, { trusted: ["npm:"] }));
});

Deno.test("what a module does when it is loaded is not trapped", async () => {
  const module = `data:text/javascript,const start = Date.now(); /* ${crypto.randomUUID()} */
    export const late = (ctx) => ({ Read() { ctx.reply(start > 0); } })`;
  const { value, failure } = await simulate({}, ({ system }) => {
    const late = system.spawn<undefined, { type: "Read" }>(
      { module, export: "late" },
      undefined,
      { id: "late" },
    );
    return system.ask(late, { type: "Read" });
  });
  assert.equal(failure, undefined);
  assert.equal(value, true);
});
