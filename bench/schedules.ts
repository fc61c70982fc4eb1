/**
 * How long schedules take to make, validate and analyse, and how that grows with their actions.
 *
 *     deno run -A bench/schedules.ts
 */

import { analyze, createSchedule, validate, withLists } from "../schedules/mod.ts";

const SIZES = [128, 256, 512, 1024, 2048];
const REPEATS = 3;

/** One size: P workers and as many micro-batches of 1F1B. */
export interface ScheduleTiming {
  /** Workers, and micro-batches. */
  readonly size: number;
  /** Actions of all lists. */
  readonly actions: number;
  /** The best of several runs. */
  readonly seconds: number;
}

function timeOf(size: number): ScheduleTiming {
  let seconds = Infinity;
  for (let i = 0; i < (size > 1000 ? 1 : REPEATS); i++) {
    const start = performance.now();
    const schedule = withLists(createSchedule("1f1b", { workers: size, microBatches: size }));
    if (validate(schedule).length > 0) throw new Error("1F1B must be valid");
    analyze(schedule);
    seconds = Math.min(seconds, (performance.now() - start) / 1000);
  }
  return { size, actions: 2 * size * size, seconds };
}

/** The exponent of the growth: the slope of log seconds over log actions, by least squares. */
export function growthExponent(timings: readonly ScheduleTiming[]): number {
  const points = timings.map(({ actions, seconds }) => [Math.log(actions), Math.log(seconds)]);
  const mean = (axis: number) =>
    points.reduce((sum, point) => sum + (point[axis] ?? 0), 0) / points.length;
  const [meanX, meanY] = [mean(0), mean(1)];
  let [covariance, variance] = [0, 0];
  for (const [x = 0, y = 0] of points) {
    covariance += (x - meanX) * (y - meanY);
    variance += (x - meanX) ** 2;
  }
  return covariance / variance;
}

/** Times every size and returns a table, with the exponent below it. */
export function scheduleBench(): string {
  timeOf(64); // compiled before it is timed
  const timings = SIZES.map(timeOf);
  const rows = timings.map(({ size, actions, seconds }) =>
    `1f1b ${String(size).padStart(5)} x ${String(size).padEnd(5)} ` +
    `${String(actions).padStart(9)} actions ${seconds.toFixed(3).padStart(8)} s ` +
    `${(1e9 * seconds / actions).toFixed(0).padStart(5)} ns an action`
  );
  const exponent = growthExponent(timings).toFixed(2);
  return [...rows, `time grows with the number of actions to the power of ${exponent}`].join("\n");
}

if (import.meta.main) {
  // deno-lint-ignore no-console -- a benchmark shows what it measured
  console.log(scheduleBench());
}
