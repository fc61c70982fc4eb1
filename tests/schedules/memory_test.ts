import { refuses } from "./cases.ts";
import assert from "node:assert/strict";
import { eachLevel } from "../../schedules/memory/memory_levels.ts";
import {
  analyze,
  assertValid,
  compareSchedules,
  createSchedule,
  type ListedSchedule,
  parseCsv,
  recomputedStages,
  scheduleFromLists,
  scheduleMemory,
  scheduleNames,
  stageMemories,
  type StageMemory,
  withLists,
  withRecomputation,
} from "../../schedules/mod.ts";

/** Recomputation put into lists: where it stands, what it costs, what it saves. */

const SIZES = { workers: 4, microBatches: 8 };

/** The schedules that can recompute, with their names. */
function recomputing(): { readonly before: ListedSchedule; readonly after: ListedSchedule }[] {
  return scheduleNames().flatMap((name) => {
    const before = createSchedule(name, SIZES);
    try {
      return [{ before: before as ListedSchedule, after: withRecomputation(before) }];
    } catch (error) {
      assert.ok(error instanceof RangeError, `${error}`);
      assert.match(error.message, /^Cannot put recomputations into the schedule /);
      return [];
    }
  });
}

Deno.test("every list with recomputations is valid, and holds no more than before", () => {
  const schedules = recomputing();
  assert.ok(schedules.length >= 12, `${schedules.length}`);
  for (const { before, after } of schedules) {
    assertValid(after);
    const plain = analyze(before), again = analyze(after), { name } = before;
    assert.ok(again.makespan >= plain.makespan - 1e-9, name);
    for (const [worker, peak] of again.peakActivations.entries()) {
      assert.ok(peak <= plain.peakActivations[worker]! + 1e-9, `${name}, worker ${worker}`);
    }
  }
});

Deno.test("a recomputation fills the time in which the gradient is on its way", () => {
  const plain = createSchedule("1f1b", SIZES), again = withRecomputation(plain);
  // Three stages compute all forwards again, which would take 3 · 8 more on one worker, and 8 in a
  // pipe that waited for each; the wait of the first backward of worker 0 takes one of them.
  const inside = analyze(plain, { forward: [1, 1, 1, 1], backward: [3, 3, 3, 2] });
  const ahead = analyze(again, { forward: 1, backward: 2 });
  assert.ok(ahead.makespan < inside.makespan, `${ahead.makespan} for ${inside.makespan}`);
  assert.deepEqual([...recomputedStages(again)].sort(), [0, 1, 2]);
});

Deno.test("stages may be picked, and what cannot be recomputed is refused", () => {
  const one = withRecomputation(createSchedule("gpipe", SIZES), (stage) => stage === 1);
  assert.deepEqual([...recomputedStages(one)], [1]);
  const refusals: [schedule: () => ListedSchedule, message: RegExp][] = [
    [() => withRecomputation(createSchedule("message-driven", SIZES)), /have lists, .* a policy$/],
    [() => withRecomputation(one), /it must have none, received some$/],
    [
      () => withRecomputation(createSchedule("dualpipe-v", SIZES)),
      /no action may overlap another, received some that do$/,
    ],
    [
      () => withRecomputation(scheduleFromLists("mine", parseCsv("0F0,0B0.0,0B0.1"))),
      /whole micro-batches, received halves$/,
    ],
    [
      () => withRecomputation(scheduleFromLists("mine", parseCsv("0F0s0,0F0s1,0B0s1,0B0s0"))),
      /whole micro-batches, received slices$/,
    ],
  ];
  for (const [schedule, message] of refusals) {
    refuses(schedule, message);
  }
});

/** Bytes of workers over their lists, held against counts by hand and against peaks in activations. */

/** The bytes of a worker at the start and the end of each action of its list. */
function levelsOf(schedule: ListedSchedule, worker: number, stages: readonly StageMemory[]) {
  const levels: number[][] = [];
  eachLevel(schedule.lists[worker]!, (stage) => stages[stage], 0, (index, isEnd, bytes) => {
    if (isEnd) levels[index]!.push(bytes);
    else levels.push([bytes]);
  });
  return levels;
}

const one = (csv: string) => scheduleFromLists("mine", parseCsv(csv));

Deno.test("I frees its part, W the rest, B all, and work is there only while an action runs", () => {
  const memory = { keptBytes: 10, freedByInputBytes: 4, workBytes: 1, messageBytes: 2 };
  assert.deepEqual(levelsOf(one("0F0,0I0,0F1,0W0,0B1\n"), 0, [memory]), [
    [13, 12],
    [13, 6],
    [19, 18],
    [19, 12],
    [13, 0],
  ]);
});

Deno.test("R brings back what F did not keep, once; without an R the backward does it itself", () => {
  const memory = { keptBytes: 1, recomputedBytes: 9 };
  assert.deepEqual(levelsOf(one("0F0,0F1,0R0,0B0,0B1\n"), 0, [memory]), [
    [1, 1],
    [2, 2],
    [11, 11],
    [11, 1],
    [10, 0],
  ]);
  assert.deepEqual(levelsOf(one("0F0,0R0,0I0,0W0\n"), 0, [{ ...memory, freedByInputBytes: 3 }]), [
    [1, 1],
    [10, 10],
    [10, 7],
    [7, 0],
  ]);
});

Deno.test("halves and slices take their part each, and nothing is left at the end", () => {
  const memory = { keptBytes: 8, recomputedBytes: 8, messageBytes: 4 };
  for (const csv of ["0F0,0B0.0,0B0.1\n", "0F0,0R0,0B0.0,0B0.1\n", "0F0s0,0F0s1,0B0s1,0B0s0\n"]) {
    assert.equal(levelsOf(one(csv), 0, [memory]).at(-1)![1], 0, csv);
  }
  assert.deepEqual(levelsOf(one("0F0s0,0F0s1,0B0s1,0B0s0\n"), 0, [memory]).slice(0, 2), [
    [6, 6],
    [12, 12],
  ]);
});

Deno.test("with one byte for an activation and for a weight, bytes are the peaks that analyze counts", () => {
  for (const name of scheduleNames()) {
    const listed = withLists(createSchedule(name, { workers: 4, microBatches: 8 }));
    const { peakActivations, weights } = analyze(listed);
    const bytes = scheduleMemory(
      listed,
      stageMemories(listed, { activations: 1, weights: 1, gradients: 0, optimizer: 0 }),
    );
    for (const [worker, { activations, weights: held, peak, held: kept }] of bytes.entries()) {
      const what = `${name}, worker ${worker}`;
      assert.ok(Math.abs(activations - peakActivations[worker]!) < 1e-9, what);
      assert.ok(Math.abs(held - weights[worker]!) < 1e-9, what);
      // A stage that gives nothing back never needs less.
      assert.ok(kept > peak - 1e-9, what);
    }
  }
});

Deno.test("bytes that do not go together are refused by name", () => {
  const schedule = withLists(createSchedule("1f1b", { workers: 2, microBatches: 2 }));
  refuses(
    () => scheduleMemory(schedule, []),
    "Cannot count the memory of 1f1b: the bytes must be of 2 stages, received 0",
  );
  assert.throws(() => stageMemories(schedule, { activations: 1, freedByInput: 2 }), {
    message:
      "Cannot use these bytes: what is kept or freed of the activations must be at most 1 for stage 0, received 2",
  });
  refuses(() => stageMemories(schedule, { weights: [1, 2, 3] }));
});

Deno.test("a comparison leaves out what needs more than a limit, and searches within it", () => {
  const bytes = { weights: 10, gradients: 10, optimizer: 20, activations: 100 };
  const sizes = { workers: 4, microBatches: 8 };
  const { analyses, memory, refused } = compareSchedules(sizes, {}, {
    memory: { bytes, limitBytes: 400 },
  });
  for (const [i, { schedule }] of analyses.entries()) {
    const most = Math.max(...memory![i]!.map(({ peak }) => peak));
    assert.ok(most <= 400, `${schedule.name} needs ${most}`);
  }
  const names = analyses.map(({ schedule }) => schedule.name);
  assert.ok(names.includes("search") && names.includes("v-half"), `${names}`);
  // 800 of activations on each worker, 40 of all else.
  const gpipe = refused.find(({ name }) => name === "gpipe");
  assert.match(gpipe!.reason, /^Cannot make the schedule gpipe: each worker must need at most /);
  const all = compareSchedules(sizes, {}, { memory: { bytes } });
  assert.ok(all.analyses.some(({ schedule }) => schedule.name === "gpipe"));
});
