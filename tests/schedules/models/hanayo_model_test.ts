import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { isNear } from "../cases.ts";
import {
  analyze,
  createSchedule,
  hanayoBubbleRatio,
  hanayoPrintedRatio,
} from "../../../schedules/mod.ts";

const counts = (max: number) => fc.integer({ min: 1, max });
const slower = fc.double({ min: 1, max: 4, noNaN: true });

function executed(workers: number, waves: number, rounds: number, backward: number, send = 0) {
  const schedule = createSchedule("hanayo", { workers, waves, microBatches: rounds * workers });
  return analyze(schedule, { forward: 1, backward, send }).bubbleRatio;
}

Deno.test("the ratio is that of the executed schedule, for every P, W, K and T_B from T_F on", () => {
  fc.assert(fc.property(counts(8), counts(4), counts(3), slower, (P, W, K, backward) => {
    const step = { workers: P, waves: W, rounds: K, forward: 1, backward };
    const [form, ratio] = [hanayoBubbleRatio(step), executed(P, W, K, backward)];
    assert.ok(isNear(form, ratio), `${form} for ${ratio}`);
  }));
});

Deno.test("messages that are short add (4W(P-1) + 2(P-2))·T_C; longer ones no less", () => {
  const short = fc.double({ min: 0, max: 0.01, noNaN: true });
  fc.assert(fc.property(counts(8), counts(4), short, (P, W, message) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2, message };
    assert.ok(isNear(hanayoBubbleRatio(step), executed(P, W, 1, 2, message)));
  }));
  const long = fc.double({ min: 0, max: 2, noNaN: true });
  fc.assert(fc.property(counts(8), counts(4), long, (P, W, message) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2, message };
    assert.ok(hanayoBubbleRatio(step) <= executed(P, W, 1, 2, message) + 1e-9);
  }));
});

Deno.test("one wave idles as Chimera on twice the workers does", () => {
  for (const P of [1, 2, 3, 4, 8]) {
    const chimera = createSchedule("chimera", { workers: 2 * P, microBatches: 2 * P });
    const ratio = hanayoBubbleRatio({ workers: P, waves: 1, forward: 1, backward: 2 });
    assert.ok(isNear(ratio, analyze(chimera).bubbleRatio), `P = ${P}`);
  }
});

Deno.test("the printed ratio is (2P-2)/(3PW+P-1), which no schedule can have", () => {
  fc.assert(fc.property(fc.integer({ min: 2, max: 32 }), counts(8), (P, W) => {
    const step = { workers: P, waves: W, forward: 1, backward: 2 };
    assert.ok(isNear(hanayoPrintedRatio(step), (2 * P - 2) / (3 * P * W + P - 1)));
    assert.ok(isNear(hanayoBubbleRatio(step), (2 * P - 2) / (3 * P * W + 2 * P - 2)));
  }));
});

Deno.test("what the ratio does not hold for is refused", () => {
  const step = { workers: 4, waves: 1, forward: 1, backward: 2 };
  assert.throws(() => hanayoBubbleRatio({ ...step, backward: 0.5 }), {
    name: "RangeError",
    message: "Cannot use the model: a backward must be at least a forward, received 0.5",
  });
  assert.throws(() => hanayoBubbleRatio({ ...step, rounds: 2, message: 1 }), RangeError);
  assert.throws(() => hanayoPrintedRatio({ ...step, workers: 1 }), RangeError);
});
