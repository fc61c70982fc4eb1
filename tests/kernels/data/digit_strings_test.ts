import assert from "node:assert/strict";
import { stringBatches, type StringTask } from "../../../kernels/mod.ts";
import fc from "../../fast_check.ts";

const PLAN = { microBatch: 4, microBatches: 2 };

/** The strings of a row, as text. */
function stringsOf(ids: Int32Array, seq: number): string[] {
  return Array.from({ length: ids.length / seq }, (_, j) => {
    const row = ids.subarray(j * seq, (j + 1) * seq), end = row.indexOf(1);
    return [...row.subarray(0, end)].map((id) => String(id - 2)).join("");
  });
}

const some = (
  task: StringTask,
  seq: number,
  seed: number,
  isHeldOut = false,
) => [...stringBatches({ task, seq, seed, isHeldOut }, { ...PLAN, steps: 10 })];

Deno.test("the targets of a string are its digits sorted or reversed, an end, and nothing predicted after it", () => {
  fc.assert(fc.property(fc.nat(), fc.integer({ min: 2, max: 20 }), (seed, seq) => {
    for (const task of ["sort", "reverse"] as const) {
      for (const { ids, targets } of some(task, seq, seed)) {
        const given = stringsOf(ids, seq), wanted = stringsOf(targets, seq);
        for (const [j, string] of given.entries()) {
          assert.ok(string.length >= 1 && string.length < seq);
          const moved = task === "sort" ? [...string].toSorted() : [...string].toReversed();
          assert.equal(wanted[j], moved.join(""));
          const rest = (
            values: Int32Array,
          ) => [...values.subarray(j * seq + string.length, (j + 1) * seq)];
          const padding = seq - string.length - 1;
          assert.deepEqual(rest(ids), [1, ...new Array<number>(padding).fill(0)]);
          assert.deepEqual(rest(targets), [1, ...new Array<number>(padding).fill(-1)]);
        }
      }
    }
  }));
});

Deno.test("no string that is held out is ever trained on", () => {
  // Of strings this short most are drawn.
  const seq = 4,
    drawn = (isHeldOut: boolean) =>
      new Set(some("sort", seq, 1, isHeldOut).flatMap(({ ids }) => stringsOf(ids, seq)));
  const trained = drawn(false), heldOut = drawn(true);
  assert.ok(heldOut.size > 10);
  for (const string of heldOut) assert.ok(!trained.has(string), string);
});

Deno.test("strings follow from the seed and the row alone: any micro-batch can be the first", () => {
  const options = { task: "reverse", seq: 12, seed: 3 } as const, all = some("reverse", 12, 3);
  assert.deepEqual([...stringBatches(options, { ...PLAN, steps: 10 }).from(13)], all.slice(13));
  assert.notDeepEqual(some("reverse", 12, 4)[0], all[0]);
});

Deno.test("strings of no digit are refused", () => {
  assert.throws(() => stringBatches({ task: "sort", seq: 1, seed: 1 }, PLAN), {
    name: "RangeError",
    message:
      "Cannot draw strings: seq must be a whole number from 2, for a digit and an end, received 1",
  });
});
