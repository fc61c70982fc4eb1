/** A transport that breaks its promises costs its isolates, and holds up nobody. */

import assert from "node:assert/strict";
import { createSystem, type RemoteIsolate, type Transport } from "../../../actors/runtime/mod.ts";
import { WORKER_TRANSPORT } from "../../../actors/runtime/transports/worker/worker_transport.ts";
import { downOf, failureOf, thrownBy, withSystem } from "./harness.ts";
import { RECORDER } from "./players.ts";

/** Deno workers, of whose transport some promises are broken. */
function broken(promises: (whole: RemoteIsolate) => Partial<RemoteIsolate>): Transport {
  return {
    ...WORKER_TRANSPORT,
    name: "broken",
    open(options) {
      const { start } = WORKER_TRANSPORT.open(options);
      return {
        start(request) {
          const whole = start(request);
          return {
            send: (frame, transfer) => whole.send(frame, transfer),
            close: () => whole.close(),
            kill: () => whole.kill(),
            abandon: () => whole.abandon?.(),
            gone: whole.gone,
            ended: whole.ended,
            ...promises(whole),
          };
        },
      };
    },
  };
}

const refuse = (what: string) => () => {
  throw new Error(`no ${what} today`);
};

const never = <T>() => new Promise<T>(() => {});

const place = { isolate: "broken" } as const, stopGraceMs = 200;

Deno.test("a transport that cannot send costs the isolate, and send does not throw", async () => {
  const transport = broken(() => ({ send: refuse("post") }));
  await withSystem({ transport, stopGraceMs }, async (system) => {
    const actor = system.spawn(RECORDER, undefined, { id: "far", ...place });
    const failure = failureOf(system, actor);
    system.send(actor, { type: "Note", what: 1 });
    const what = /the broken of "far" has ended: its transport cannot send: no post today/;
    assert.match((await failure).error.message, what);
    assert.match((await thrownBy(system.ask(actor, { type: "Read" }))).message, what);
  });
});

Deno.test("a transport that fails to tell of an end has told of it", async () => {
  const transport = broken(({ gone }) => ({ gone: gone.then(refuse("news")) }));
  await withSystem({ transport, stopGraceMs }, async (system) => {
    const module = "data:text/javascript,export const quitter = () => (self.close(), {})";
    const actor = system.spawn({ module, export: "quitter" }, undefined, { id: "far", ...place });
    const { error } = await failureOf(system, actor);
    assert.match(error.message, /its transport cannot tell of its end: no news today/);
  });
});

for (
  const [what, promises] of Object.entries(
    {
      "never tells of an end": () => ({ gone: never<string>() }),
      "never ends": () => ({ ended: never<void>() }),
      "cannot kill": (whole) => ({
        kill() {
          whole.kill();
          refuse("murder")();
        },
      }),
    } satisfies Record<string, (whole: RemoteIsolate) => Partial<RemoteIsolate>>,
  )
) {
  Deno.test(`a system ends whose transport ${what}`, async () => {
    const system = createSystem({ transport: broken(promises), stopGraceMs });
    const actors = ["one", "other"].map((id) =>
      system.spawn(RECORDER, undefined, { id, ...place })
    );
    for (const actor of actors) assert.deepEqual(await system.ask(actor, { type: "Read" }), []);
    const down = downOf(system, actors[0]!);
    await system.stop(actors[0]!);
    assert.equal((await down).reason, "stopped");
    await system.stop();
  });
}
