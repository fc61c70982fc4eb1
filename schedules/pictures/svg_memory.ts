/** The curves of live activations below a drawing. */

import { activationChanges } from "../actions/activations.ts";
import type { Analysis } from "../execution/analyze.ts";
import { pipelineWorkers } from "../stages.ts";
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

/** A step for each change: a forward counts from its start, a backward until its end. */
function memoryPath(
  { schedule, execution, makespan }: Analysis,
  worker: number,
  { scale, y }: { scale: number; y: (live: number) => number },
): string {
  const { starts, ends } = execution.timeline;
  const list = schedule.lists[worker]!, changes = activationChanges(list);
  const share = pipelineWorkers(schedule) / schedule.stages / list.slices;
  let live = 0;
  let path = `M0 ${round(y(0))}`;
  for (let index = 0; index < list.length; index++) {
    let [gained, lost] = [0, 0];
    for (let part = list.startOf(index); part < list.startOf(index + 1); part++) {
      const change = (changes[part] as number) * share;
      if (change > 0) gained += change;
      else lost -= change;
    }
    if (gained > 0) {
      live += gained;
      path += `H${round((starts[worker]?.[index] ?? 0) * scale)}V${round(y(live))}`;
    }
    if (lost > 0) {
      live -= lost;
      path += `H${round((ends[worker]?.[index] ?? 0) * scale)}V${round(y(live))}`;
    }
  }
  return `${path}H${round(makespan * scale)}`;
}
