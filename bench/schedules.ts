/**
 * Measures the time to make, validate and analyze schedules, and its growth with their actions.
 *
 *     deno run -A bench/schedules.ts
 */

import { analyze, createSchedule, validate, withLists } from "../schedules/mod.ts";
import { exponentOf } from "./timing.ts";

const SIZES = [128, 256, 512, 1024, 2048];
const REPEATS = 3;

/** Returns the least time, of several runs, for 1F1B with P workers and P micro-batches. */
function timeOf(size: number) {
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

/** Times every size; returns a table with the exponent below it. */
function scheduleBench(): string {
  timeOf(64); // compiled before it is timed
  const timings = SIZES.map(timeOf);
  const rows = timings.map(({ size, actions, seconds }) =>
    `1f1b ${String(size).padStart(5)} x ${String(size).padEnd(5)} ` +
    `${String(actions).padStart(9)} actions ${seconds.toFixed(3).padStart(8)} s ` +
    `${(1e9 * seconds / actions).toFixed(0).padStart(5)} ns an action`
  );
  const exponent = exponentOf(timings.map(({ actions, seconds }) => [actions, seconds])).toFixed(2);
  return [...rows, `time grows with the number of actions to the power of ${exponent}`].join("\n");
}

if (import.meta.main) {
  // deno-lint-ignore no-console -- the output of the benchmark
  console.log(scheduleBench());
}
