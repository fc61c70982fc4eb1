import assert from "node:assert/strict";
import { eager, main } from "../../examples/custom_schedule.ts";
import { analyze, validate, withLists } from "../../schedules/mod.ts";

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
