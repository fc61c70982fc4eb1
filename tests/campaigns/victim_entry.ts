/**
 * A small run that somebody else harms: it says where it is, a line for each moment, and at the end
 * what its weights are.
 *
 * @module
 */

import { train, type TrainOptions } from "../../actors/mod.ts";
import { gpt2 } from "../../kernels/mod.ts";
import { print } from "../../console/print.ts";
import { batchesOf, SMALL } from "../actors/runs.ts";
import type { Harm, VictimOptions } from "./victim_helper.ts";

/** Ends a thread when its moment has come. */
function endThreads({ moment, afterMs, which }: Harm): (now: string) => void {
  const Original = globalThis.Worker, workers: Worker[] = [];
  globalThis.Worker = class extends Original {
    constructor(...args: ConstructorParameters<typeof Original>) {
      super(...args);
      // Nobody else can end a thread that has not yet begun to listen.
      this.addEventListener("message", () => workers.push(this), { once: true });
    }
  };
  return (now) => {
    if (now !== moment) return;
    setTimeout(() => workers.at(-1 - Math.floor(which * workers.length))?.terminate(), afterMs);
  };
}

const { sizes: given, thread, ...options } = JSON.parse(Deno.args[0]!) as VictimOptions;
const sizes = { ...SMALL, layers: 4, hidden: 16, seq: 8, microBatches: 4, steps: 6, ...given };
const harm = thread ? endThreads(thread) : () => {};
/** Where the run is. */
const at = (moment: string) => {
  print(moment);
  harm(moment);
};
at("begin");
const directory = await Deno.makeTempDir();
try {
  const events = train({
    ...options as Partial<TrainOptions>,
    model: gpt2(sizes, sizes.microBatch),
    data: batchesOf(sizes, 2 * sizes.microBatches * sizes.steps),
    steps: sizes.steps,
    microBatches: sizes.microBatches,
    // After every second step an evaluation comes first, then a checkpoint.
    evaluation: { every: 2, batches: batchesOf(sizes, 2) },
    checkpoint: { directory, every: 2, config: {} },
    announce: (line) => print(`told ${line}`),
  });
  for await (const event of events) {
    if (event.type === "plan") at("start");
    if (event.type === "step" || event.type === "evaluation") at(`${event.type} ${event.step}`);
    if (event.type === "end") print(`hash ${event.weightsHash}`);
  }
} finally {
  await Deno.remove(directory, { recursive: true });
}
