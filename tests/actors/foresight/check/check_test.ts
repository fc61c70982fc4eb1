/** A check compares the median of repeats with a prediction, and tells where the time went. */

import assert from "node:assert/strict";
import { checkResult, checkStep, isNear } from "../../../../actors/foresight/check/checked_step.ts";
import { configurationsFor, nameOf } from "../../../../actors/foresight/check/configurations.ts";
import {
  meanParts,
  measuredParts,
  type StepParts,
} from "../../../../actors/foresight/check/step_parts.ts";

const none: StepParts = {
  busyMs: 0,
  dispatchMs: 0,
  messageMs: 0,
  bubbleMs: 0,
  closingMs: 0,
  actions: {},
};

const about = {
  configuration: "1f1b",
  parts: { measured: none, predicted: none },
  notes: [],
};

Deno.test("the error is that of the median, and never below 0", () => {
  const step = checkStep([90, 100, 130, 95, 105], 80, about);
  assert.deepEqual([step.measured, step.spread, step.predicted], [100, 30, 80]);
  assert.equal(step.error, 0.2);
});

Deno.test("a prediction is near within 10 %, or the measured spread where that is larger", () => {
  assert.ok(isNear(checkStep([100, 100, 100], 110, about)));
  assert.ok(!isNear(checkStep([100, 100, 100], 111, about)));
  assert.ok(isNear(checkStep([100, 100, 120], 119, about)));
  assert.ok(!isNear(checkStep([100, 100, 120], 121, about)));
});

Deno.test("a check passes if the median error is within 5 % and each prediction is near", () => {
  const step = (predicted: number) => checkStep([100, 100, 100], predicted, about);
  assert.ok(checkResult([step(104), step(96), step(110)]).isPassed);
  assert.ok(!checkResult([step(104), step(96), step(111)]).isPassed);
  assert.ok(!checkResult([step(106), step(94), step(100)]).isPassed);
  assert.equal(checkResult([step(104), step(80)]).missed.length, 1);
  assert.throws(() => checkResult([]), RangeError);
});

Deno.test("there are twelve configurations or more for two cores, and none has more workers than cores", () => {
  const names = configurationsFor(2).map(nameOf);
  assert.ok(names.length >= 12 && new Set(names).size === names.length, names.join("; "));
  for (const cores of [1, 2, 4]) {
    for (const { options: { workers, replicas = 1 } } of configurationsFor(cores)) {
      assert.ok(workers * replicas <= cores);
    }
  }
  assert.ok(configurationsFor(4).some(({ options }) => options.workers === 4));
});

Deno.test("the parts of a traced step add up to it", () => {
  const traces = [[
    { name: "0F0", start: 10, end: 12 },
    { name: "0B0", start: 18, end: 20, arrived: 17.5 },
    { name: "optimizer", start: 21, end: 22 },
  ], [
    { name: "1F0", start: 13, end: 15, arrived: 13 },
    { name: "1B0", start: 15.5, end: 17 },
    { name: "optimizer", start: 21, end: 23 },
  ]];
  const parts = measuredParts(16, traces, 1);
  assert.equal(parts.busyMs, (4 + 3.5) / 2);
  assert.equal(parts.closingMs, 6);
  assert.equal(parts.messageMs, (0.5 + 1) / 2);
  assert.equal(parts.dispatchMs, (0.5 + 0.5) / 2);
  const { busyMs, dispatchMs, messageMs, bubbleMs, closingMs } = parts;
  assert.equal(busyMs + dispatchMs + messageMs + bubbleMs + closingMs, 16);
  assert.deepEqual(parts.actions, { "0B": 2, "0F": 2, "1B": 1.5, "1F": 2 });
  assert.equal(meanParts([parts, { ...parts, busyMs: parts.busyMs + 2 }]).busyMs, busyMs + 1);
});
