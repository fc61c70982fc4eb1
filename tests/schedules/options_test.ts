import assert from "node:assert/strict";
import {
  compareSchedules,
  createSchedule,
  defineSchedule,
  findSchedule,
  linear,
  scheduleDefinitions,
  type ScheduleOptions,
} from "../../schedules/mod.ts";
import type { ScheduleOption } from "../../schedules/define.ts";
import { assertRefusals } from "../console/refusals.ts";
import { allCases, type Case, FOUR, refuses, sentenceOf } from "./cases.ts";

Deno.test("the refusal of an option names the values that a schedule can serve", async () => {
  await assertRefusals("schedules", ([name, ...words]) => {
    const given = words.map((word) => word.split("=") as [string, string]);
    const valueOf = (text: string) => isNaN(Number(text)) ? text : Number(text);
    const options = Object.fromEntries(given.map(([option, text]) => [option, valueOf(text)]));
    return sentenceOf(() => createSchedule(name!, { ...FOUR, ...options }).name);
  });
});

Deno.test("Chimera numbers a unit's micro-batches pipe by pipe, whatever the scale", () => {
  for (const scale of ["direct", "doubling", "halving"] as const) {
    const { pipelineOf } = createSchedule("chimera", { ...FOUR, scale });
    assert.deepEqual(pipelineOf, [0, 0, 1, 1, 0, 0, 1, 1]);
  }
  const few = createSchedule("chimera", { workers: 8, microBatches: 3, pipelines: 2 });
  assert.deepEqual(few.pipelineOf, [0, 1, 2]);
});

/** A value of each option that every schedule with this option can serve with two workers. */
const VALUES: Required<Pick<ScheduleOptions, ScheduleOption>> = {
  ...{ pipelineLimit: 2, order: "bfw", weightBacklog: 1, limitBy: "bytes", pipelines: 1 },
  ...{ sizes: [0.5, 1, 1, 1], chunks: 2, waves: 2, slices: 2 },
  ...{ scale: "direct", costs: { send: 1 }, activationLimit: 4, weightLimit: 2 },
  ...{ recomputeAhead: true, edges: [{ from: 0, to: [1] }], found: () => {} },
};
const OPTIONS = Object.keys(VALUES) as ScheduleOption[];
const SMALL = { workers: 2, microBatches: 4 } as const;

/** The options that a schedule and its policies read, without its size. */
function askedFor({ name, options: { workers, microBatches } }: Case): string[] {
  const asked = new Set<string>();
  // A copy of the options has only their keys, so an option counts only when its value is read.
  const options = new Proxy<ScheduleOptions>({ workers, microBatches }, {
    get(target, option) {
      if (OPTIONS.includes(option as ScheduleOption)) asked.add(String(option));
      return Reflect.get(target, option);
    },
  });
  try {
    const schedule = findSchedule(name).create(options);
    schedule.placement.forEach((_, worker) => schedule.policy(worker));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return [...asked];
}

Deno.test("a lone worker gets the next micro-batch while it holds the activations of one", () => {
  for (const [workers, flying, last] of [[1, 2, 1], [2, 2, 1], [4, 4, 1]] as const) {
    const options = { workers, microBatches: 8, order: "fifo" } as const;
    const { injectionLimit, peaks } = createSchedule("message-driven", options);
    assert.deepEqual([injectionLimit, peaks!.at(-1)!.most], [flying, last]);
  }
});

Deno.test("every schedule reads the options that it declares, and no others", () => {
  for (const { name, reads } of scheduleDefinitions) {
    if (name === "search") continue; // it hands its options on to all others
    const cases = allCases().filter((one) =>
      one.name === name && one.options.workers <= 4 && one.options.microBatches <= 16
    );
    assert.deepEqual([...new Set(cases.flatMap(askedFor))].sort(), reads?.toSorted(), name);
  }
});

Deno.test("an option that a schedule does not read is refused by name", () => {
  for (const { name, reads = [], create } of scheduleDefinitions) {
    for (const option of OPTIONS) {
      const options = { ...SMALL, [option]: VALUES[option] };
      if (reads.includes(option)) createSchedule(name, options);
      else {
        const message = `schedule ${name}: it does not read ${option}; schedules that do:`;
        refuses(() => createSchedule(name, options), new RegExp(message));
        refuses(() => create(options), /does not read/);
      }
    }
    createSchedule(name, { ...SMALL, waves: undefined, costs: { send: undefined } });
  }
});

Deno.test("a comparison gives each schedule the options that it reads", () => {
  const { analyses } = compareSchedules({ ...SMALL, waves: 2, chunks: 4 });
  const stages = new Map(analyses.map(({ schedule }) => [schedule.name, schedule.stages]));
  assert.deepEqual(["1f1b", "hanayo", "interleaved"].map((name) => stages.get(name)), [2, 8, 8]);
});

Deno.test("an alias is the name of the schedule that it makes, and is compared once", () => {
  const [named, alias] = ["1f1b", "dapple"].map((name) => createSchedule(name, SMALL));
  assert.equal(alias!.name, "dapple");
  const { policy: _, ...rest } = named!, { policy: __, ...other } = alias!;
  assert.deepEqual({ ...other, name: "1f1b" }, rest);
  const { analyses, refused } = compareSchedules(SMALL);
  const names = [...analyses.map(({ schedule }) => schedule.name), ...refused.map((r) => r.name)];
  assert.deepEqual(names.sort(), scheduleDefinitions.map(({ name }) => name).sort());
  assert.ok(!names.includes("dapple"));
});

Deno.test("a user's schedule that declares no options gets all of them", () => {
  const seen: unknown[] = [];
  const place = (options: ScheduleOptions) => (seen.push(options.waves), linear(options));
  const mine = defineSchedule({ name: "mine", summary: "reads any", order: () => [], place });
  mine.create({ ...SMALL, waves: 3 });
  assert.ok(seen.includes(3));
});
