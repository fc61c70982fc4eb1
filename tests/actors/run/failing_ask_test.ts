/** What a run holds does not grow with its steps: answers are let go of, and failures still heard. */

import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createSystem } from "../../../actors/mod.ts";
import { askUnlessFailed } from "../../../actors/run/engines/failing_ask.ts";
import { train } from "../../../actors/mod.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { batchesOf, type Sizes, SMALL } from "../runs.ts";

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

/** Collects garbage until promise ticks and finalizers have no more to let go of. */
async function collectAll(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setTimeout(resolve, 0));
    collect();
  }
}

const ECHO = `data:text/javascript,export const echo = (ctx) => ({
  Echo() { ctx.reply({ weights: new Float32Array(1000) }); },
  Break() { ctx.deferReply(); throw new Error("no power"); },
})`;
const SPEC = { module: ECHO, export: "echo" };
type Ask = { type: "Echo" | "Break" };

Deno.test("no answer stays reachable while the system goes on", async () => {
  await using system = createSystem();
  const echo = system.spawn<undefined, Ask>(SPEC, undefined, { id: "echo" });
  const answers: WeakRef<object>[] = [];
  for (let i = 0; i < 50; i++) {
    answers.push(new WeakRef(await askUnlessFailed<Ask, object>(system, echo, { type: "Echo" })));
  }
  await collectAll();
  const kept = answers.filter((answer) => answer.deref()).length;
  assert.ok(kept <= 1, `${kept} of 50 answers are still there`);
});

Deno.test("whoever waits hears that another actor has failed, and so does whoever asks later", async () => {
  await using system = createSystem();
  const other = system.spawn<undefined, Ask>(SPEC, undefined, { id: "other" });
  const mute = system.spawn<undefined, Ask>(
    {
      module:
        `data:text/javascript,export const mute = (ctx) => ({ Echo() { ctx.deferReply(); } })`,
      export: "mute",
    },
    undefined,
    { id: "mute" },
  );
  const waits = askUnlessFailed(system, mute, { type: "Echo" });
  system.send(other, { type: "Break" });
  await assert.rejects(waits, /"other" failed while handling Break: Error: no power/);
  const later = askUnlessFailed(system, mute, { type: "Echo" });
  await assert.rejects(later, /"other" failed while handling Break: Error: no power/);
});

Deno.test("a run that keeps a snapshot every ten steps holds one of them after 60 as after 20", async () => {
  const sizes: Sizes = { ...SMALL, hidden: 128, seq: 4, microBatches: 1, steps: 60 };
  const again = batchesOf(sizes, 1), held = new Map<number, number>();
  const data = (function* () {
    for (;;) yield* again;
  })();
  let stateBytes = 0;
  for await (
    const event of train({
      model: gpt2(sizes, sizes.microBatch),
      data,
      steps: sizes.steps,
      microBatches: 1,
      workers: 2,
      device: "native",
      runtime: "local",
    })
  ) {
    if (event.type === "plan") stateBytes = 12 * event.plan.parameters;
    if (event.type !== "step" || event.step % 20 > 0) continue;
    await collectAll();
    held.set(event.step, Deno.memoryUsage().external);
  }
  const growth = held.get(60)! - held.get(20)!;
  assert.ok(growth < stateBytes / 2, `${growth} bytes more, of a state of ${stateBytes}`);
});
