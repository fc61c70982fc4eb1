/**
 * Your own pipeline schedule: defines, validates and draws it, and compares it with 1F1B.
 *
 * 1F1B keeps the fewest micro-batches in flight that fill the pipeline. When messages take time, a worker
 * waits for each gradient. The schedule below runs up to twice as many forwards first, so that a
 * gradient is on its way while there is other work: more activations for less waiting.
 *
 *     deno run -A examples/custom_schedule.ts
 */

import {
  type Action,
  analyze,
  assertValid,
  B,
  createSchedule,
  defineSchedule,
  F,
  formatGrid,
  formatSvg,
  type ScheduleOptions,
  withLists,
} from "@troupe/troupe";

/** 1F1B with up to 2(D-1-s) forwards on worker s before its first backward. */
export const eager = defineSchedule({
  name: "eager-1f1b",
  summary: "1f1b with twice the forwards in flight, for slow messages",
  reads: [], // no option but workers and microBatches: another is refused by name
  // One stage for each worker; a schedule may place several, and several replicas of them.
  place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage }),
  // What a worker does, in order. `place` and `order` get the same options.
  *order(worker, { workers, microBatches }: ScheduleOptions): Iterable<Action> {
    const ahead = Math.min(microBatches, 2 * (workers - 1 - worker));
    for (let m = 0; m < microBatches + ahead; m++) {
      if (m < microBatches) yield F(worker, m);
      if (m >= ahead) yield B(worker, m - ahead);
    }
  },
});

/** Compares the schedule with 1F1B; returns the text to print. */
export function main(): string {
  const options = { workers: 4, microBatches: 8 };
  const costs = { forward: 1, backward: 2, send: 0.5 };
  const schedule = withLists(eager.create(options));
  assertValid(schedule); // or a RangeError that names the action that is wrong

  const lines: string[] = [];
  for (const one of [schedule, createSchedule("1f1b", options)]) {
    const analysis = analyze(one, costs);
    const { makespan, bubbleRatio, peakActivations } = analysis;
    lines.push(
      `${one.name}: time ${makespan}, bubbles ${(100 * bubbleRatio).toFixed(1)} %, ` +
        `activations ${peakActivations.join(" ")}`,
      formatGrid(analysis),
    );
  }
  return lines.join("\n");
}

if (import.meta.main) {
  // deno-lint-ignore no-console -- the output of the script
  console.log(main());
  const file = await Deno.makeTempFile({ prefix: "eager-1f1b-", suffix: ".svg" });
  await Deno.writeTextFile(file, formatSvg(analyze(eager.create({ workers: 4, microBatches: 8 }))));
  // deno-lint-ignore no-console
  console.log(`drawn in ${file}`);
}
