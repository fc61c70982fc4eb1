/**
 * Addresses: each belongs to one system, and what is made up reaches nobody.
 *
 * @module
 */

import assert from "node:assert/strict";
import { type ActorRef, type ActorSpec, createSystem } from "../../../../actors/runtime/mod.ts";
import { failureOf, thrownBy, until } from "../harness.ts";
import { SERVER, type ServerMessage } from "../players.ts";
import { type AnyMessage, plain } from "./careless.ts";
import type { Given, Suite } from "./suite.ts";

/** Does to an address all that an actor can, and tells what came of it. */
const INTRUDER: ActorSpec<undefined, AnyMessage> = plain(`(ctx) => ({
  async Try({ to }) {
    tell = ctx.deferReply();
    ctx.send(to, { type: "Throw" });
    ctx.stop(to);
    ctx.unwatch(to);
    const asked = await ctx.ask(to, { type: "Double", n: 1 }).catch(String);
    ctx.watch(to, (down) => ({ type: "Down", asked, why: down.reason.error.message }));
  },
  Down: ({ asked, why }) => tell({ asked, why }),
}); let tell`);

/** An actor of each of two systems, whose addresses differ in nothing but these. */
async function withTwins(
  { system, isolate, options }: Given,
  test: (own: ActorRef<ServerMessage>, foreign: ActorRef<ServerMessage>) => Promise<void>,
): Promise<void> {
  await using other = createSystem(options);
  const [own, foreign] = [system, other].map((one) =>
    one.spawn(SERVER, undefined, { id: "server", isolate })
  ) as [ActorRef<ServerMessage>, ActorRef<ServerMessage>];
  assert.deepEqual({ ...foreign, system: 0 }, { ...own, system: 0 });
  assert.notEqual(foreign.system, own.system);
  await test(own, foreign);
  assert.equal(await system.ask(own, { type: "Double", n: 1 }), 2);
  assert.equal(await other.ask(foreign, { type: "Double", n: 2 }), 4);
  assert.deepEqual(other.deadLetters, []);
}

export const ADDRESSES: Suite = {
  "addresses of another system reach nobody": (given) =>
    withTwins(given, async (_, foreign) => {
      const { system } = given;
      system.send(foreign, { type: "Throw" });
      assert.deepEqual(system.deadLetters.map(({ reason }) => reason), ["no-such-actor"]);
      assert.match(
        String(await thrownBy(system.ask(foreign, { type: "Double", n: 1 }))),
        /TypeError: Cannot ask "server" for "Double": it must be an actor of the same system/,
      );
      const failure = await failureOf(system, foreign);
      assert.equal(failure.error.message, 'actor "server" is of another system');
      await system.stop(foreign);
    }),

  "nor do they when an actor got them in a message": (given) =>
    withTwins(given, async (_, foreign) => {
      const { system, isolate } = given;
      const intruder = system.spawn(INTRUDER, undefined, { id: "intruder", isolate });
      assert.deepEqual(await system.ask(intruder, { type: "Try", to: foreign }), {
        asked:
          'TypeError: Cannot ask "server" for "Double": it must be an actor of the same system',
        why: 'actor "server" is of another system',
      });
      await until(() => system.deadLetters.length === 2);
      assert.ok(system.deadLetters.every(({ reason }) => reason === "no-such-actor"));
    }),

  "an address with a made-up system reaches nobody": (given) =>
    withTwins(given, async (own) => {
      const { system } = given, made = [undefined, -1, "1" as never, NaN, Symbol("s") as never];
      for (const forged of made) {
        const nobody = { ...own, system: forged } as typeof own;
        system.send(nobody, { type: "Throw" });
        await system.stop(nobody);
      }
      assert.equal(system.deadLetters.length, made.length);
      assert.ok(system.deadLetters.every(({ reason }) => reason === "no-such-actor"));
    }),

  "to let go of a foreign address lets go of no other": async ({ system, isolate }) => {
    const own = system.spawn(SERVER, undefined, { id: "server", isolate });
    const watcher = system.spawn(
      plain(`(ctx) => ({
        Watch({ own, foreign }) {
          ctx.watch(own, ({ reason }) => ({ type: "Down", reason }));
          ctx.unwatch(foreign);
          tell = ctx.deferReply();
          ctx.send(own, { type: "Stop" });
        },
        Down: ({ reason }) => tell(reason),
      }); let tell`),
      undefined,
      { id: "watcher", isolate },
    );
    const foreign = { ...own, system: 0 };
    assert.equal(await system.ask(watcher, { type: "Watch", own, foreign }), "stopped");
  },

  "an address with a made-up serial or isolate reaches nobody": async ({ system, isolate }) => {
    const own = system.spawn(SERVER, undefined, { id: "server", isolate });
    const most = Number.MAX_SAFE_INTEGER;
    const made = [{ serial: most }, { isolate: most }, { isolate: own.isolate + 1 }];
    for (const forged of made) system.send({ ...own, ...forged }, { type: "Throw" });
    await until(() => system.deadLetters.length === made.length);
    assert.ok(system.deadLetters.every(({ reason }) => reason === "no-such-actor"));
    assert.equal(await system.ask(own, { type: "Double", n: 1 }), 2);
  },
  "messages to isolates that never were are dead letters": async ({ system, isolate }) => {
    const spec = plain(`(ctx) => ({
      Go({ to, count }) {
        for (let n = 0; n < count; n++) {
          ctx.send(to, { type: "Note", what: new Uint8Array(2 ** 16) });
        }
        ctx.watch(to, (down) => ({ type: "Down", down }));
      },
      Down: ({ down }) => tell?.(down.reason),
      Wait() { tell = ctx.deferReply(); },
    }); let tell`);
    const ref = system.spawn(spec, undefined, { id: "x", isolate });
    const told = system.ask(ref, { type: "Wait" });
    const nobody = { ...ref, id: "nobody", isolate: ref.isolate * 65_536 + 7 };
    system.send(ref, { type: "Go", to: nobody, count: 10 });
    for (let n = 0; n < 10; n++) system.send(nobody, { type: "Note" });
    assert.match(
      String(await thrownBy(system.ask(nobody, { type: "Note" }))),
      /ActorFailedError: .*"nobody" has stopped/,
    );
    assert.equal(await told, "stopped");
    await until(() => system.deadLetters.length >= 21);
    const expected = { to: "nobody", type: "Note", reason: "no-such-actor" };
    assert.deepEqual(
      system.deadLetters.map(({ from: _, ...letter }) => letter),
      Array(21).fill(expected),
    );
  },
};
