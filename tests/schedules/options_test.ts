import assert from "node:assert/strict";
import { eager, main } from "../../examples/custom_schedule.ts";
import {
  analyze,
  B,
  compareSchedules,
  createSchedule,
  defineSchedule,
  F,
  findSchedule,
  linear,
  scheduleDefinitions,
  type ScheduleOption,
  type ScheduleOptions,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import { allCases, type Case, refuses } from "./cases.ts";

/** What is asked, and what the refusal says. */
const REFUSED: readonly [string, Record<string, unknown>, RegExp][] = [
  ["nonesuch", {}, /name must be one of gpipe, .*1f1b, .*search, received "nonesuch"/],
  ["1f1b", { workers: 0 }, /workers must be at least 1, received 0/],
  ["1f1b", { microBatches: 1.5 }, /microBatches must be a whole number, at least 1, received 1.5/],
  ["1f1b", { workers: 1e5, microBatches: 1e5 }, /stages times micro-batches must be at most/],
  [
    "interleaved",
    { microBatches: 9 },
    /microBatches must be a multiple of their 2 rounds, .*4 workers/,
  ],
  ["seq1f1b-zb", { microBatches: 3 }, /microBatches must be at least the number of workers, 4/],
  ["slimpipe", { slices: 9 }, /slices must be a multiple of their 2 rounds, .* received 9/],
  [
    "slimpipe",
    { slices: 3, microBatches: 10 },
    /microBatches must be a multiple of their 7 rounds/,
  ],
  ["terapipe", { slices: 0 }, /slices must be at least 1, received 0/],
  ["interleaved-zb", { microBatches: 14 }, /microBatches must be a multiple of their 3 rounds/],
  ["interleaved-zb", { chunks: 1 }, /chunks must be at least 2, received 1/],
  ["interleaved", { chunks: 1 }, /chunks must be at least 2, received 1/],
  ["pipedream-2bw", { microBatches: 3 }, /microBatches must be at least the number of workers, 4/],
  ["chimera", { workers: 3 }, /workers must be even, received 3/],
  ["chimera", { workers: 12, pipelines: 4 }, /so one of 1, 2, 3, 6, received 4/],
  ["chimera", { scale: "tripling" }, /scale must be direct, doubling or halving/],
  ["chimera-wave", { microBatches: 6 }, /must be a multiple of the 4 workers of a pipeline/],
  ["hanayo", { microBatches: 6 }, /must be a multiple of the 4 workers of a pipeline, received 6/],
  ["message-driven", { order: "lifo" }, /order must be fifo or backward-first, received "lifo"/],
  ["message-driven", { pipelineLimit: 0 }, /pipelineLimit must be at least 1, received 0/],
  ["zb-h1", { microBatches: 3 }, /microBatches must be at least the number of workers, 4/],
  ["zb-h2", { microBatches: 6 }, /microBatches must be at least 7 for 4 workers, received 6/],
  ["v-half", { microBatches: 3 }, /at least the number of workers, 4/],
  ["v-min", { microBatches: 3 }, /at least the number of workers, 4/],
  ["dualpipe", { workers: 5 }, /workers must be even, received 5/],
  ["dualpipe", { microBatches: 9 }, /even and at least 8 for 4 workers, received 9/],
  ["dualpipe-v", { microBatches: 7 }, /at least 8 for 4 workers, received 7/],
  ["chimera-greedy", { workers: 3 }, /workers must be even/],
  ["search", { activationLimit: 0.2 }, /the limits must leave room for some schedule/],
];

Deno.test("options that a schedule cannot serve are refused with those that it can", () => {
  for (const [name, options, message] of REFUSED) {
    const ask = () => createSchedule(name, { workers: 4, microBatches: 8, ...options });
    assert.throws(ask, { name: "RangeError", message }, `${name} ${JSON.stringify(options)}`);
  }
});

Deno.test("a schedule of one's own cannot place a stage on a worker that does not exist", () => {
  const wrong = defineSchedule({
    name: "wrong",
    summary: "a stage too far",
    place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage + 1 }),
    order: (worker) => [F(worker, 0), B(worker, 0)],
  });
  refuses(
    () => wrong.create({ workers: 2, microBatches: 1 }),
    "Cannot place wrong: the worker of stage 1 of replica 0 must be from 0 to 1, received 2",
  );
});

Deno.test("Chimera numbers a unit's micro-batches pipe by pipe, whatever the scale", () => {
  for (const scale of ["direct", "doubling", "halving"] as const) {
    const options = { workers: 4, microBatches: 8, scale };
    assert.deepEqual(createSchedule("chimera", options).replicaOf, [0, 0, 1, 1, 0, 0, 1, 1]);
  }
  const few = createSchedule("chimera", { workers: 8, microBatches: 3, pipelines: 2 });
  assert.deepEqual(few.replicaOf, [0, 1, 2]);
});

/** A value of each option that every schedule which reads it can serve with two workers. */
const VALUES: Required<Pick<ScheduleOptions, ScheduleOption>> = {
  pipelineLimit: 2,
  order: "fifo",
  chunks: 2,
  waves: 2,
  slices: 2,
  pipelines: 1,
  scale: "direct",
  costs: { send: 1 },
  activationLimit: 4,
  weightLimit: 2,
  edges: [{ from: 0, to: [1] }],
};
const OPTIONS = Object.keys(VALUES) as ScheduleOption[];
const SMALL = { workers: 2, microBatches: 4 } as const;

/** The options that making the schedule and its policies asks for, beside its size. */
function askedFor({ name, options: { workers, microBatches } }: Case): string[] {
  const asked = new Set<string>();
  // Copies take only what is there, so that an option counts where its value is wanted.
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

Deno.test("every schedule reads the options that it says it reads, and no others", () => {
  for (const { name, reads } of scheduleDefinitions) {
    if (name === "search") continue; // it hands its options on to all others
    const cases = allCases().filter((one) => one.name === name && one.options.workers <= 4);
    const asked = new Set(cases.flatMap(askedFor));
    assert.deepEqual([...asked].sort(), reads?.toSorted(), name);
  }
});

Deno.test("an option that a schedule does not read is refused by name", () => {
  for (const { name, reads = [], create } of scheduleDefinitions) {
    for (const option of OPTIONS) {
      const options = { ...SMALL, [option]: VALUES[option] };
      if (reads.includes(option)) {
        createSchedule(name, options);
        continue;
      }
      const message = new RegExp(
        `schedule ${name}: it does not read ${option}; schedules that do:`,
      );
      refuses(() => createSchedule(name, options), message);
      refuses(() => create(options), /does not read/);
    }
    createSchedule(name, { ...SMALL, waves: undefined, costs: { send: undefined } });
  }
  assert.throws(() => createSchedule("dapple", { ...SMALL, waves: 3, chunks: 2 }), {
    message: "Cannot make the schedule dapple: it does not read waves or chunks; " +
      "schedules that do: search",
  });
});

Deno.test("a comparison gives each schedule what it reads", () => {
  const { analyses } = compareSchedules({ ...SMALL, waves: 2, chunks: 4 });
  const stages = new Map(analyses.map(({ schedule }) => [schedule.name, schedule.stages]));
  assert.deepEqual(["1f1b", "hanayo", "interleaved"].map((name) => stages.get(name)), [2, 8, 8]);
});

Deno.test("an alias makes the schedule under the name that was asked for, and is compared once", () => {
  const [named, alias] = ["1f1b", "dapple"].map((name) => createSchedule(name, SMALL));
  assert.equal(alias!.name, "dapple");
  const { policy: _, ...rest } = named!, { policy: __, ...other } = alias!;
  assert.deepEqual({ ...other, name: "1f1b" }, rest);
  const { analyses, refused } = compareSchedules(SMALL);
  const names = [...analyses.map(({ schedule }) => schedule.name), ...refused.map((r) => r.name)];
  assert.deepEqual(names.sort(), scheduleDefinitions.map(({ name }) => name).sort());
  assert.ok(!names.includes("dapple"));
});

Deno.test("a schedule of one's own that does not say what it reads is given everything", () => {
  let seen: number | undefined;
  const mine = defineSchedule({
    name: "mine",
    summary: "reads what it likes",
    place(options: ScheduleOptions) {
      seen = options.waves;
      return linear(options);
    },
    order: () => [],
  });
  mine.create({ ...SMALL, waves: 3 });
  assert.equal(seen, 3);
});

Deno.test("the example of a schedule of one's own is valid, drawn and compared with 1F1B", () => {
  for (const workers of [1, 2, 4, 7]) {
    for (const microBatches of [1, 3, 16]) {
      const schedule = withLists(eager.create({ workers, microBatches }));
      assert.deepEqual(validate(schedule), []);
      const peak = Math.min(microBatches, 2 * workers - 1);
      assert.equal(analyze(schedule).peakActivations[0], peak);
    }
  }
  const printed = main();
  assert.match(printed, /eager-1f1b: time 36, .*activations 7 5 3 1\n/);
  assert.match(printed, /1f1b: time 41, .*activations 4 3 2 1\n/);
  assert.match(printed, /worker 3 {2}·········F0B0──/);
});
