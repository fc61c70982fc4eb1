/** Recomputation put into lists: where it stands, what it costs, what it saves. */

import assert from "node:assert/strict";
import {
  analyze,
  assertValid,
  createSchedule,
  type ListedSchedule,
  parseCsv,
  recomputedStages,
  scheduleFromLists,
  scheduleNames,
  withRecomputation,
} from "../../../schedules/mod.ts";

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
    assert.throws(schedule, { name: "RangeError", message });
  }
});
