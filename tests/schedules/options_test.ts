import assert from "node:assert/strict";
import { B, createSchedule, defineSchedule, F, scheduleNames } from "../../schedules/mod.ts";

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

Deno.test("every schedule of the papers has its name", () => {
  const names = [
    ..."gpipe 1f1b dapple interleaved looped-bfs gems pipedream pipedream-2bw chimera".split(" "),
    ..."chimera-wave hanayo message-driven zb-h1 zb-h2 zb-v v-half v-min dualpipe".split(" "),
    ..."dualpipe-v chimera-greedy interleaved-zb seq1f1b".split(" "),
    ..."seq1f1b-zb terapipe slimpipe search".split(" "),
  ];
  const known = scheduleNames();
  assert.deepEqual(names.filter((name) => !known.includes(name)), []);
  assert.equal(new Set(known).size, known.length);
});

Deno.test("a schedule of one's own cannot place a stage on a worker that does not exist", () => {
  const wrong = defineSchedule({
    name: "wrong",
    summary: "a stage too far",
    place: ({ workers }) => ({ stages: workers, workerOf: (stage) => stage + 1 }),
    order: (worker) => [F(worker, 0), B(worker, 0)],
  });
  assert.throws(() => wrong.create({ workers: 2, microBatches: 1 }), {
    name: "RangeError",
    message:
      "Cannot place wrong: the worker of stage 1 of replica 0 must be from 0 to 1, received 2",
  });
});

Deno.test("a schedule is the same data each time it is made", () => {
  for (const name of scheduleNames()) {
    const [first, second] = [1, 2].map(() => createSchedule(name, { workers: 4, microBatches: 8 }));
    assert.deepEqual(first!.lists?.map(String), second!.lists?.map(String), name);
    assert.deepEqual(first!.placement, second!.placement, name);
  }
});

Deno.test("Chimera numbers a unit's micro-batches pipe by pipe, whatever the scale", () => {
  for (const scale of ["direct", "doubling", "halving"] as const) {
    const options = { workers: 4, microBatches: 8, scale };
    assert.deepEqual(createSchedule("chimera", options).replicaOf, [0, 0, 1, 1, 0, 0, 1, 1]);
  }
  const few = createSchedule("chimera", { workers: 8, microBatches: 3, pipelines: 2 });
  assert.deepEqual(few.replicaOf, [0, 1, 2]);
});
