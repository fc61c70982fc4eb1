/** Why one run is behind another: the part of its step that costs it most. */

import type { WorkerTimes } from "../../../schedules/mod.ts";
import { mapNumbers } from "../profile/find_costs.ts";
import { type PlannedRun, SAME } from "./planned_run.ts";

/**
 * The reason in a few words: of the parts by which the step is longer the one that is most of it; and
 * what makes up for some of it, where it is more than all. Workers that compute longer wait longer
 * for one another, too: the bubble is a reason where its share is above that of the best one.
 */
export function whyLonger(run: PlannedRun, best: PlannedRun): string {
  const longer = run.stepMs - best.stepMs, more = excessOf(run, best);
  if (longer <= SAME * best.stepMs) return ofMemory(run, best);
  const parts = PARTS.filter((part) =>
    part !== "bubbleMs" || run.bubble > best.bubble + MORE_BUBBLE
  );
  const worst = parts.reduce((a, b) => more[b] > more[a] ? b : a);
  const gain = PARTS.reduce((a, b) => more[b] < more[a] ? b : a);
  const isMade = more[worst] > 1.1 * longer && more[gain] < 0;
  return `${wordsOf(worst, run, best)}: ${milliseconds(more[worst])} more` +
    (isMade ? `, ${PART_WORDS[gain]} ${milliseconds(-more[gain])} less` : "");
}

/** A share of the bubble that is above another one by less is no reason. */
const MORE_BUBBLE = 0.005;

const PART_WORDS = {
  busyMs: "kernels",
  dispatchMs: "dispatch",
  communicationMs: "communication",
  bubbleMs: "bubble",
  closingMs: "end of the step",
} as const;

const PARTS = Object.keys(PART_WORDS) as (keyof WorkerTimes)[];

/** Milliseconds of each part by which a step is longer than another; below 0 where it is shorter. */
export function excessOf({ parts: own }: PlannedRun, { parts: best }: PlannedRun): WorkerTimes {
  return mapNumbers(own, (ms, name) => ms - best[name]);
}

function ofMemory(run: PlannedRun, best: PlannedRun): string {
  const more = run.peakBytes - best.peakBytes;
  return more > 0
    ? `memory: as long, ${(100 * more / best.peakBytes).toFixed(0)} % more`
    : "nothing: as long, with as much memory";
}

/** A part of a step in words, as far as these runs tell what it comes from. */
const wordsOf = (part: keyof WorkerTimes, run: PlannedRun, best: PlannedRun): string => ({
  busyMs: busyWords(run, best),
  dispatchMs: "dispatch of more actions",
  communicationMs: "communication between stages",
  bubbleMs: "bubble",
  closingMs: run.replicas > best.replicas
    ? `all-reduce and commit of ${run.replicas} replicas`
    : "optimizer and commit",
}[part]);

/** What differs, and makes workers compute longer. */
function busyWords(run: PlannedRun, best: PlannedRun): string {
  if (run.recompute !== best.recompute && run.recompute !== "none") {
    return `recompute ${run.recompute}`;
  }
  if (run.precision !== best.precision) return `kernels in ${run.precision}`;
  if (run.microBatch !== best.microBatch) {
    return `kernels for ${run.microBatch} samples in place of ${best.microBatch}`;
  }
  return "kernels";
}

const milliseconds = (ms: number) => `${ms < 10 ? ms.toPrecision(2) : Math.round(ms)} ms`;
