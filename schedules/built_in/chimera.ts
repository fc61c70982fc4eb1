/** Chimera and GEMS: pipelines in both directions over the same workers, each with a copy of the model. */

import { B, F } from "../action.ts";
import {
  bidirectional,
  defineMade,
  defineSchedule,
  evenShare,
  inSlotOrder,
  perWorker,
  requireOption,
  type ScheduleOptions,
  type SlottedAction,
} from "../define.ts";
import { assertInput } from "../errors.ts";
import { withOrders } from "../schedule.ts";
import { greedyOrder } from "../search/greedy.ts";
import { workloadOf } from "../search/limits.ts";

/*
[Note: Chimera's slots]
The paper draws each unit as a table of unit slots in which no two pipes need one worker at a time
(checked for every even D up to 24). With k the number of a micro-batch within its pipe, a unit of
D micro-batches puts F of stage s into slot 2k + s and B into slot 2k + 2D - 1 - s. The order of a
worker is the order of its slots; the durations then stretch the table.

A doubled unit (2D micro-batches) puts *pairs* into the F slots, and two chunks of backwards, the
second one D slots later, into the B slots; it is 3D slots long. A halved unit is the same table with
one micro-batch in place of a pair and half a backward in place of a backward.

The paper's Figure 7(d) removes half of the bubbles at the start of the doubled table. They go away if
a pair runs as two forwards while the pipe fills: a doubled forward makes the next stage wait for
both. `isDoubled` keeps exactly those pairs doubled that cost no time at any tB >= 2tF.
*/

/** One pipe of one unit: its first slot in the table, and its micro-batches in order. */
interface PipeOfUnit {
  readonly start: number;
  readonly isFirstUnit: boolean;
  readonly kind: "basic" | "doubled" | "halved";
  readonly microBatches: readonly number[];
}

/** The units of one pipe. */
function* unitsOf(pipe: number, options: ScheduleOptions): Iterable<PipeOfUnit> {
  const { workers: depth, microBatches: total, pipelines = 1, scale = "direct" } = options;
  const ofUnit = (first: number): number[] => {
    const size = Math.max(0, Math.min(depth, total - first));
    let start = first;
    for (let other = 0; other < pipe; other++) start += evenShare(size, 2 * pipelines, other);
    return Array.from({ length: evenShare(size, 2 * pipelines, pipe) }, (_, k) => start + k);
  };
  let start = 0;
  for (let first = 0; first < total;) {
    const isFirstUnit = first === 0;
    const whole = Math.floor((total - first) / depth);
    const kind = scale === "doubling" && whole >= 2
      ? "doubled"
      : scale === "halving" && whole >= 1
      ? "halved"
      : "basic";
    const units = kind === "doubled" ? [first, first + depth] : [first];
    yield { start, isFirstUnit, kind, microBatches: units.flatMap(ofUnit) };
    first += units.length * depth;
    start += (kind === "basic" ? 2 : 3) * depth;
  }
}

/** Returns true if a pair runs as one doubled forward; see the note on Chimera's slots. */
function isDoubled(pair: number, stage: number, pairs: number, depth: number): boolean {
  const isOuter = stage < pairs || stage >= depth - pairs;
  return isOuter && (pair === pairs - 1 || pair + stage % pairs >= pairs);
}

/** The slots of one stage in one pipe of one unit. */
function slotsOf(unit: PipeOfUnit, stage: number, depth: number): SlottedAction[] {
  const { start, isFirstUnit, kind, microBatches } = unit;
  const at = (k: number) => microBatches[k]!;
  const forwardSlot = (k: number) => start + 2 * k + stage;
  const backwardSlot = (k: number) => start + 2 * k + 2 * depth - 1 - stage;
  const count = microBatches.length;
  const slots: SlottedAction[] = [];
  const steps = kind === "doubled" ? count / 2 : count; // the F slots, and the B slots of a chunk
  for (let k = 0; k < steps; k++) {
    if (kind !== "doubled") slots.push([forwardSlot(k), F(stage, at(k))]);
    else if (!isFirstUnit || isDoubled(k, stage, steps, depth)) {
      slots.push([forwardSlot(k), F(stage, at(2 * k), at(2 * k + 1))]);
    } else {
      slots.push([forwardSlot(k), F(stage, at(2 * k))], [forwardSlot(k), F(stage, at(2 * k + 1))]);
    }
  }
  const backwards = kind === "halved"
    ? microBatches.flatMap((m) => [B(stage, m, 0), B(stage, m, 1)])
    : microBatches.map((m) => B(stage, m));
  backwards.forEach((backward, j) => {
    slots.push([j < steps ? backwardSlot(j) : backwardSlot(j - steps) + depth, backward]);
  });
  return slots;
}

/**
 * Chimera (Li and Hoefler 2021, "Chimera: Efficiently Training Large-Scale Neural Networks with
 * Bidirectional Pipelines"): its unit (section 3.1), more micro-batches than workers (3.5), and more
 * than two pipes (3.6).
 */
export const chimera = defineSchedule({
  name: "chimera",
  reads: ["pipelines", "scale"],
  summary: "f pipes down and f up over the same workers: half the bubbles, 2f copies of the model",
  check: checkChimera,
  place: bidirectional,
  order(worker, options) {
    const { workers: depth } = options;
    const { pipelineCount, workerOf } = bidirectional(options);
    const slots: SlottedAction[] = [];
    for (let pipe = 0; pipe < pipelineCount; pipe++) {
      const stage = perWorker(depth, (s) => s).find((s) => workerOf(s, pipe) === worker)!;
      for (const unit of unitsOf(pipe, options)) slots.push(...slotsOf(unit, stage, depth));
    }
    return inSlotOrder(slots);
  },
});

/**
 * Checks the options of a bidirectional schedule.
 *
 * @throws {RangeError} if the number of workers is odd, if the number of pipes does not divide half
 * of it, or if the scale is unknown.
 */
function checkChimera(name: string, options: ScheduleOptions): void {
  const { workers, pipelines = 1, scale = "direct" } = options;
  requireOption(name, "workers", workers, workers % 2 === 0, "even");
  const half = workers / 2;
  const divisors = perWorker(half, (i) => i + 1).filter((f) => half % f === 0);
  const must = `a divisor of half the workers, so one of ${divisors.join(", ")}`;
  requireOption(name, "pipelines", pipelines, divisors.includes(pipelines), must);
  const isKnown = ["direct", "doubling", "halving"].includes(scale);
  const scales = "scale must be direct, doubling or halving";
  assertInput(isKnown, `make the schedule ${name}`, scales, `"${scale}"`);
}

/**
 * Chimera's placement (Li and Hoefler 2021, section 3.6) with the order of a list scheduler: backwards
 * first, then the forward of the deepest stage, with at most `pipelineLimit` micro-batches in flight
 * in each pipe (D/f unless given; with D/2f or fewer the pipes run dry). The units of the paper leave
 * K·(D/f - 2) gaps between them; this order leaves few: with tB = 2tF, D = 8 and N = 64 the idle time
 * is 21 instead of 54, for 14 activations instead of 8.
 */
export const chimeraGreedy = defineMade(
  {
    name: "chimera-greedy",
    summary: "Chimera's pipes in greedy order: fewer bubbles at large N for more activations",
    reads: ["pipelines", "pipelineLimit", "costs"],
  },
  ({ workers, microBatches, pipelines = 1, pipelineLimit = workers / pipelines, costs }) => {
    const base = chimera.create({ workers, microBatches, pipelines });
    const limits = new Array<number>(workers).fill(Infinity);
    const orders = greedyOrder(workloadOf(base, costs), { limits, pipeLimit: pipelineLimit });
    return withOrders(base, "chimera-greedy", orders);
  },
);

/**
 * GEMS (Jain et al. 2020, "GEMS: GPU-Enabled Memory-Aware Model-Parallelism System for Distributed
 * DNN Training"), as the paper on Chimera describes it in section 2: even micro-batches run on the
 * down copy, odd ones on the up copy.
 */
export const gems = defineSchedule({
  name: "gems",
  reads: [],
  summary: "two copies of the model, one activation on each worker, mostly idle",
  place: ({ workers, microBatches }) => ({
    ...bidirectional({ workers, microBatches }),
    pipelineOf: (microBatch) => microBatch % 2,
  }),
  *order(worker, { workers, microBatches }) {
    for (let m = 0; m < microBatches; m++) {
      const stage = m % 2 === 0 ? worker : workers - 1 - worker;
      yield F(stage, m);
      yield B(stage, m);
    }
  },
});
