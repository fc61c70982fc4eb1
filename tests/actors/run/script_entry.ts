/** A script that trains in runs/mine and continues there: its arguments are a folder and steps. */

import { print, printError } from "../../../console/terminal.ts";
import { train } from "../../../mod.ts";
import { batches, RINGS } from "./own_layers.ts";

const [folder, steps] = Deno.args;
Deno.chdir(folder!);
for await (
  const event of train({
    ...{ model: RINGS, data: batches(), steps: Number(steps), out: "runs/mine", resume: "mine" },
    ...{ device: "reference", runtime: "local", microBatches: 1, announce: printError },
  })
) {
  if (event.type === "step") print(`step ${event.step}`);
  if (event.type === "end") print(`end ${event.isInterrupted} ${event.weightsHash}`);
}
