import assert from "node:assert/strict";
import type { Clock } from "../../../actors/runtime/world/clock.ts";
import type { Isolate } from "../../../actors/runtime/isolate/isolate.ts";
import { openSystem } from "../../../actors/runtime/root.ts";
import { AskTimeoutError } from "../../../actors/runtime/mod.ts";
import { thrownBy } from "./harness.ts";
import { CLOCKWORK, type ClockworkMessage, SERVER } from "./players.ts";

/** A clock that stands still until nothing can run. */
function virtualClock(): Clock {
  let now = 0;
  let count = 0;
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

const openVirtual = () =>
  openSystem({ seed: 0, clock: virtualClock(), breathe: () => undefined, stopGraceMs: 1000 });

Deno.test("a timer with a key is forgotten when its message is handled", async () => {
  let isolate!: Isolate;
  const attach = (one: Isolate) => void (isolate = one);
  const world = { seed: 0, clock: virtualClock(), breathe: () => undefined, stopGraceMs: 1000 };
  await using system = openSystem({ ...world, attach });
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock" });
  for (const key of ["a", "b", undefined]) {
    system.send(clock, { type: "Set", delayMs: 10, what: "x", ...key !== undefined && { key } });
  }
  const rung = () => system.ask<ClockworkMessage, string[]>(clock, { type: "Read" });
  while ((await rung()).length < 3);
  assert.equal(isolate.actors.get(clock.serial)!.timers.size, 0);
});

Deno.test("the same actors run under a virtual clock: an hour takes no time", async () => {
  await using system = openVirtual();
  const clock = system.spawn(CLOCKWORK, undefined, { id: "clock", isolate: "worker" });
  assert.equal(clock.isolate, 0, "without a transport all actors live in this isolate");
  for (const [delayMs, what] of [[3_600_000, "late"], [10, "soon"], [1000, "then"]] as const) {
    system.send(clock, { type: "Set", delayMs, what });
  }
  const server = system.spawn(SERVER, undefined, { id: "server" });
  const timeoutMs = 7_200_000;
  const error = await thrownBy(system.ask(server, { type: "Never" }, { timeoutMs }));
  assert.ok(error instanceof AskTimeoutError);
  const read = { type: "Read" } as const;
  assert.deepEqual(await system.ask(clock, read), ["soon", "then", "late"]);
  const elapsedMs = await system.ask<ClockworkMessage, number>(clock, { type: "Elapsed" });
  assert.equal(elapsedMs, timeoutMs);
});
