import assert from "node:assert/strict";
import { exempt, simulate, TRAPPED } from "../../../actors/simulation/mod.ts";
import { ROGUE, type RogueMessage } from "./players.ts";

const HERE = Object.fromEntries(TRAPPED.map(({ token }) => [token, valueOf(token)]));

function valueOf(token: string): unknown {
  return token.split(".").reduce<unknown>(
    (object, name) => (object as Record<string, unknown> | undefined)?.[name],
    globalThis,
  );
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
    assert.ok(valueOf(token), `${token} must exist here`);
    for (const type of ["Use", "UseLater", "Swallow"] as const) {
      const failure = await tell({ type, token });
      assert.equal(failure?.kind, "determinism", type);
      assert.ok(failure.message.startsWith(`Cannot call ${token}: actor "rogue" must`));
    }
  });
}

Deno.test("after a simulation everything is as it was, also after a failure", async () => {
  await tell({ type: "Throw" });
  for (const { token } of TRAPPED) assert.equal(valueOf(token), HERE[token], token);
  assert.ok(new Date() instanceof Date);
});

Deno.test("dates with arguments are plain values, and allowed", async () => {
  const module = `data:text/javascript,export const calendar = (ctx) => ({
    Read() { ctx.reply([new Date(0).getTime(), new Date(0) instanceof Date]); },
  })`;
  const { value } = await simulate({}, ({ system }) => {
    const calendar = system.spawn<undefined, { type: "Read" }>(
      { module, export: "calendar" },
      undefined,
      { id: "calendar" },
    );
    return system.ask(calendar, { type: "Read" });
  });
  assert.deepEqual(value, [0, true]);
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
