/** The curves of live activations below a drawing. */

import type { Analysis } from "../execution/analyze.ts";
import { liveActivations } from "../execution/live_activations.ts";
import { inkOf } from "./palette.ts";
import { axisLine, round, text, title } from "./svg_shapes.ts";
import { shortNumber, ticks } from "./ticks.ts";

/** The height of the curves in pixels. */
export const MEMORY_HEIGHT = 120;

/** The live activations of every worker over time, the fullest one thick. */
export function drawMemory(analysis: Analysis, scale: number): string {
  const { peakActivations, schedule } = analysis;
  const width = analysis.makespan * scale;
  const most = Math.max(...peakActivations);
  const fullest = peakActivations.indexOf(most);
  const y = (live: number) => MEMORY_HEIGHT * (1 - live / Math.max(most, 1e-9));
  const pieces = [
    axisLine(0, 0, 0, MEMORY_HEIGHT),
    axisLine(0, MEMORY_HEIGHT, width, MEMORY_HEIGHT),
  ];
  for (const live of ticks(most, 5)) {
    pieces.push(axisLine(-4, y(live), 0, y(live)));
    pieces.push(text(-8, y(live), shortNumber(live), { anchor: "end" }));
  }
  const order = schedule.lists.map((_, worker) => worker).filter((worker) => worker !== fullest);
  for (const worker of [...order, fullest]) {
    const position = { stage: worker, stages: schedule.workers, replica: 0, replicas: 1 };
    const stroke = inkOf("B", position).fill;
    const thickness = worker === fullest ? 2 : 0.8;
    pieces.push(
      `<path d="${memoryPath(analysis, worker, { scale, y })}" fill="none" stroke="${stroke}" ` +
        `stroke-width="${thickness}">` +
        title(
          `worker ${worker}: at most ${shortNumber(peakActivations[worker]!)} live activations`,
        ) +
        `</path>`,
    );
  }
  const caption = `live activations of each worker; thick: worker ${fullest}, ` +
    `the fullest, peak ${shortNumber(most)}`;
  pieces.push(text(0, MEMORY_HEIGHT + 18, caption, {}));
  return pieces.join("\n");
}

/** A step for each change. */
function memoryPath(
  analysis: Analysis,
  worker: number,
  { scale, y }: { scale: number; y: (live: number) => number },
): string {
  let path = `M0 ${round(y(0))}`;
  for (const { time, live } of liveActivations(analysis, worker)) {
    path += `H${round(time * scale)}V${round(y(live))}`;
  }
  return `${path}H${round(analysis.makespan * scale)}`;
}
