/** The data that Troupe brings with it: digits, noisy ones, strings of digits and texts. */

import assert from "node:assert/strict";
import {
  DIGIT_PIXELS,
  digitBatches,
  loadDigits,
  noisyDigitBatches,
  stringBatches,
  type StringTask,
} from "../../../kernels/data/digits.ts";
import { batchRows, shuffledOrder } from "../../../kernels/data/token_batches.ts";
import { loadText, TEXT_NAMES, type TextName } from "../../../kernels/data/texts.ts";
import { splitBatch } from "../../../kernels/batch.ts";
import { runProgram } from "../../console/command.ts";
import fc, { forAll } from "../../fast_check.ts";
import { assertRefused } from "../graph/refused.ts";

/** The ink of a row of digits. */
const imageOf = (images: Float32Array, row: number) =>
  images.subarray(row * DIGIT_PIXELS, (row + 1) * DIGIT_PIXELS);

Deno.test("digits have the same shuffled order every time, in two parts, with their labels", async () => {
  const { train, heldOut } = await loadDigits();
  assert.deepEqual([...train.labels.slice(0, 10)], [8, 8, 3, 9, 1, 3, 4, 5, 6, 4]);
  for (const [{ images, labels }, count] of [[train, 9000], [heldOut, 1000]] as const) {
    assert.deepEqual([labels.length, images.length], [count, count * DIGIT_PIXELS]);
    assert.ok(images.every((ink) => ink >= 0 && ink <= 1));
    for (let digit = 0; digit < 10; digit++) {
      const share = labels.filter((label) => label === digit).length / count;
      assert.ok(share > 0.07 && share < 0.13, `${share} of digit ${digit}`);
    }
  }
  // Ones are thin and noughts are not: labels that had come apart from images would even it out.
  const inkOf = (digit: number) => {
    const rows = [...heldOut.labels.keys()].filter((row) => heldOut.labels[row] === digit);
    const inks = rows.map((row) => imageOf(heldOut.images, row).reduce((a, b) => a + b));
    return inks.reduce((a, b) => a + b) / inks.length;
  };
  assert.ok(inkOf(0) > 2 * inkOf(1), `${inkOf(0)} and ${inkOf(1)}`);
});

Deno.test("digits are loaded by a process with a heap of 64 MiB, where all their JSON does not fit", async () => {
  const program = `await (await import("./kernels/data/digits.ts")).loadDigits()`;
  const flags = ["--ext=js", "--v8-flags=--max-old-space-size=64"];
  const { code, stderr } = await runProgram(Deno.execPath(), ["eval", ...flags, program]);
  assert.equal(code, 0, stderr);
});

Deno.test("micro-batches of digits are rows of the data, numbered as all rows are", () => {
  const count = 7;
  const digits = {
    images: Float32Array.from({ length: count * DIGIT_PIXELS }, (_, i) => i),
    labels: Int32Array.from({ length: count }, (_, i) => i),
  };
  const plan = { microBatch: 2, microBatches: 2, steps: 3, order: shuffledOrder(count, 1) };
  const rows = [...batchRows(count, plan)], batches = [...digitBatches(digits, plan)];
  assert.deepEqual(batches.map(({ labels }) => [...labels]), rows);
  batches.forEach(({ features }, g) =>
    assert.deepEqual([...features], rows[g]!.flatMap((row) => [...imageOf(digits.images, row)]))
  );
  assert.throws(() => digitBatches(digits, { microBatch: 8, microBatches: 1 }), RangeError);
});

Deno.test("noise depends on the seed and the row of the run, not on the size of micro-batches", () => {
  const count = 7, images = new Float32Array(count * DIGIT_PIXELS).fill(0.25);
  const digits = { images, labels: new Int32Array(count) };
  const run = { microBatches: 2, steps: 3, order: shuffledOrder(count, 1) };
  const noise = { deviation: 0.5, seed: 1 };
  const rowsOf = (microBatch: number, fromStep: number, seed: number) => {
    const plan = { ...run, microBatch, fromStep };
    return [...noisyDigitBatches(digits, plan, { ...noise, seed })].flatMap((batch) => {
      assert.ok(batch.targets.every((ink) => ink === 0.25));
      const { features } = batch;
      return splitBatch({ features }, microBatch).map(({ features }) => [...features!]);
    });
  };
  const single = rowsOf(1, 1, 1), pairs = rowsOf(2, 1, 1), all = pairs.flat().map(Number);
  assert.deepEqual(pairs.slice(0, 6), single);
  assert.deepEqual(rowsOf(1, 3, 1).slice(0, 2), single.slice(4, 6));
  assert.equal(new Set(pairs.map(String)).size, 12); // A digit that comes again has other noise.
  assert.notDeepEqual(rowsOf(1, 1, 2), single);
  const [third] = [...noisyDigitBatches(digits, { ...run, microBatch: 2 }, noise).from(3)];
  assert.deepEqual([...third!.features], pairs.slice(6, 8).flat());
  const spread = Math.sqrt(all.reduce((sum, ink) => sum + (ink - 0.25) ** 2, 0) / all.length);
  assert.ok(Math.abs(spread - 0.5) < 0.03, `${spread}`);
});

const PLAN = { microBatch: 4, microBatches: 2, steps: 10 };

/** The strings of a row, as text. */
function stringsOf(ids: Int32Array, seq: number): string[] {
  return Array.from({ length: ids.length / seq }, (_, j) => {
    const row = ids.subarray(j * seq, (j + 1) * seq), end = row.indexOf(1);
    return [...row.subarray(0, end)].map((id) => String(id - 2)).join("");
  });
}

const some = (task: StringTask, seq: number, seed: number, isHeldOut = false) => [
  ...stringBatches({ task, seq, seed, isHeldOut }, PLAN),
];

Deno.test("the targets of a string are its digits, sorted or reversed, then an end, then no predictions", () =>
  forAll(100, [fc.nat(), fc.integer({ min: 2, max: 20 })], (seed, seq) => {
    for (const task of ["sort", "reverse"] as const) {
      for (const { ids, targets } of some(task, seq, seed)) {
        const wanted = stringsOf(targets, seq);
        for (const [j, string] of stringsOf(ids, seq).entries()) {
          assert.ok(string.length >= 1 && string.length < seq);
          const moved = task === "sort" ? [...string].toSorted() : [...string].toReversed();
          assert.equal(wanted[j], moved.join(""));
          const rest = (of: Int32Array) => [...of.subarray(j * seq + string.length, (j + 1) * seq)];
          const padding = seq - string.length - 1;
          assert.deepEqual(rest(ids), [1, ...new Array<number>(padding).fill(0)]);
          assert.deepEqual(rest(targets), [1, ...new Array<number>(padding).fill(-1)]);
        }
      }
    }
  }));

Deno.test("no string that is held out is ever trained on", () => {
  // Of strings this short most are drawn.
  const drawn = (isHeldOut: boolean) =>
    new Set(some("sort", 4, 1, isHeldOut).flatMap(({ ids }) => stringsOf(ids, 4)));
  const trained = drawn(false), heldOut = drawn(true);
  assert.ok(heldOut.size > 10);
  assert.ok(heldOut.isDisjointFrom(trained));
});

Deno.test("strings depend only on the seed and the row: any micro-batch can be the first", () => {
  const options = { task: "reverse", seq: 12, seed: 3 } as const, all = some("reverse", 12, 3);
  assert.deepEqual([...stringBatches(options, PLAN).from(13)], all.slice(13));
  assert.notDeepEqual(some("reverse", 12, 4)[0], all[0]);
});

Deno.test("the built-in texts are complete and in order, and other names are refused", async () => {
  const [sotu, mobyDick] = [await loadText("sotu"), await loadText("moby-dick")];
  assert.deepEqual([sotu.length, mobyDick.length], [10_760_506, 1_190_317]);
  assert.ok(sotu.startsWith("Fellow-Citizens of the Senate and House of Representatives: In meet"));
  assert.ok(sotu.indexOf("four score") < sotu.lastIndexOf("pandemic"), "1790 before 2021");
  assert.ok(mobyDick.indexOf("CHAPTER 99.") < mobyDick.indexOf("CHAPTER 100."));
  assert.deepEqual(TEXT_NAMES, ["sotu", "moby-dick"]);
  await assertRefused("built_in_data", [
    ...["shakespeare", "toString", ""].map((name) =>
      [name, () => loadText(name as TextName)] as const
    ),
    ["strings of no digit", () => some("sort", 1, 1)],
  ]);
});
