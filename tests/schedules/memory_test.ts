import { FOUR, listed } from "./cases.ts";
import assert from "node:assert/strict";
import { eachLevel } from "../../schedules/analysis/memory.ts";
import {
  analyze,
  assertValid,
  compareSchedules,
  createSchedule,
  type ListedSchedule,
  type Schedule,
  scheduleNames,
  stageMemories,
  type StageMemory,
  withLists,
  withRecomputation,
} from "../../schedules/mod.ts";
import { recomputedStages } from "../../schedules/analysis/recomputation.ts";
import { scheduleMemory } from "../../schedules/analysis/memory.ts";

/** Recomputation in lists: its position, cost and savings. */

Deno.test("every list with recomputations is valid, and does not hold more than before", () => {
  let count = 0;
  for (const name of scheduleNames()) {
    const before = createSchedule(name, FOUR);
    const after = recomputed(before);
    if (!after) continue;
    count++;
    assertValid(after);
    const plain = analyze(before), again = analyze(after);
    assert.ok(again.makespan >= plain.makespan - 1e-9, name);
    for (const [worker, peak] of again.peakActivations.entries()) {
      assert.ok(peak <= plain.peakActivations[worker]! + 1e-9, `${name}, worker ${worker}`);
    }
  }
  assert.ok(count >= 12, `${count}`);
});

/** The schedule with recomputations; undefined if it can have none. */
function recomputed(schedule: Schedule): ListedSchedule | undefined {
  try {
    return withRecomputation(schedule);
  } catch (error) {
    assert.match(`${error}`, /^RangeError: Cannot put recomputations into the schedule /);
  }
}

Deno.test("a recomputation runs while the gradient is in transit", () => {
  const plain = createSchedule("1f1b", FOUR), again = withRecomputation(plain);
  // Three stages compute all forwards again, which would take 3 · 8 more on one worker, and 8 in a
  // pipe that waited for each; the wait of the first backward of worker 0 takes one of them.
  const inside = analyze(plain, { forward: [1, 1, 1, 1], backward: [3, 3, 3, 2] });
  const ahead = analyze(again, { forward: 1, backward: 2 });
  assert.ok(ahead.makespan < inside.makespan, `${ahead.makespan} for ${inside.makespan}`);
  assert.deepEqual([...recomputedStages(again)].sort(), [0, 1, 2]);
});

Deno.test("stages that compute again can be selected", () => {
  const one = withRecomputation(createSchedule("gpipe", FOUR), (stage) => stage === 1);
  assert.deepEqual([...recomputedStages(one)], [1]);
});

/** Bytes of workers over their lists, compared with counts by hand and peaks in activations. */

/** The bytes of a worker at the start and the end of each action of its list. */
function levelsOf(csv: string, memory: StageMemory) {
  const levels = eachLevel(listed(csv).lists[0]!, () => memory, 0);
  return [...Map.groupBy(levels, ({ index }) => index).values()]
    .map((both) => both.map(({ bytes }) => bytes));
}

Deno.test("I frees its part, W the rest, B all, and work memory is held only while an action runs", () => {
  const memory = { keptBytes: 10, freedByInputBytes: 4, workBytes: 1, messageBytes: 2 };
  const levels = [[13, 12], [13, 6], [19, 18], [19, 12], [13, 0]];
  assert.deepEqual(levelsOf("0F0,0I0,0F1,0W0,0B1\n", memory), levels);
});

Deno.test("R brings back the dropped activation once; without an R the backward brings it back", () => {
  const memory = { keptBytes: 1, recomputedBytes: 9 }, parts = { ...memory, freedByInputBytes: 3 };
  const whole = [[1, 1], [2, 2], [11, 11], [11, 1], [10, 0]];
  assert.deepEqual(levelsOf("0F0,0F1,0R0,0B0,0B1\n", memory), whole);
  const split = [[1, 1], [10, 10], [10, 7], [7, 0]];
  assert.deepEqual(levelsOf("0F0,0R0,0I0,0W0\n", parts), split);
});

Deno.test("halves and slices each take their part, and nothing is left at the end", () => {
  const memory = { keptBytes: 8, recomputedBytes: 8, messageBytes: 4 };
  for (const csv of ["0F0,0B0.0,0B0.1\n", "0F0,0R0,0B0.0,0B0.1\n", "0F0.0,0F0.1,0B0.1,0B0.0\n"]) {
    assert.equal(levelsOf(csv, memory).at(-1)![1], 0, csv);
  }
  const [first, second] = levelsOf("0F0.0,0F0.1,0B0.1,0B0.0\n", memory);
  assert.deepEqual([first, second], [[6, 6], [12, 12]]);
});

Deno.test("with one byte for an activation and for a weight, bytes are the peaks of analyze", () => {
  for (const name of scheduleNames()) {
    const listed = withLists(createSchedule(name, FOUR)), analysis = analyze(listed);
    const bytes = { activations: 1, weights: 1, gradients: 0, optimizer: 0 };
    const memory = scheduleMemory(listed, stageMemories(listed, bytes));
    for (const [worker, { activations, weights: held }] of memory.entries()) {
      const what = `${name}, worker ${worker}`;
      assert.ok(Math.abs(activations - analysis.peakActivations[worker]!) < 1e-9, what);
      assert.ok(Math.abs(held - analysis.weights[worker]!) < 1e-9, what);
    }
  }
});

Deno.test("a comparison leaves out schedules above a limit, and searches within it", () => {
  const bytes = { weights: 10, gradients: 10, optimizer: 20, activations: 100 };
  const limited = { memory: { bytes, limitBytes: 400 } };
  const { analyses, memory, refused } = compareSchedules(FOUR, {}, limited);
  for (const [i, { schedule }] of analyses.entries()) {
    const most = Math.max(...memory![i]!.map(({ peak }) => peak));
    assert.ok(most <= 400, `${schedule.name} needs ${most}`);
  }
  const names = analyses.map(({ schedule }) => schedule.name);
  assert.ok(names.includes("search") && names.includes("v-half"), `${names}`);
  // 800 of activations on each worker, 40 of weights, gradients and optimizer.
  const gpipe = refused.find(({ name }) => name === "gpipe");
  assert.match(gpipe!.reason, /^Cannot make the schedule gpipe: each worker must need at most /);
  const all = compareSchedules(FOUR, {}, { memory: { bytes } });
  assert.ok(all.analyses.some(({ schedule }) => schedule.name === "gpipe"));
});
