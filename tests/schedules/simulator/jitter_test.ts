import assert from "node:assert/strict";
import {
  chooseMailbox,
  createSchedule,
  modelOfCosts,
  simulateStep,
  tryMailboxes,
} from "../../../schedules/mod.ts";

/** What the table of published figures was taken with: D = 8, N = 32, tB = 2tF, messages of 0.2. */
const SIZE = { workers: 8, microBatches: 32 } as const;

/** Mean steps of 1F1B, then of message-driven with each limit, draws from seed 0 on. */
const means = (
  order: "fifo" | "backward-first",
  limits: readonly number[],
  conditions: Parameters<typeof tryMailboxes>[1] = {},
) => {
  const trials = limits.map((pipelineLimit) =>
    tryMailboxes({ ...SIZE, pipelineLimit, order }, { draws: 100, ...conditions })
  );
  return [trials[0]![0]!.mean, ...trials.map(([, { mean } = { mean: NaN }]) => mean)];
};

/** An action takes its time, times 1 + 0.5·u, u from 0 to 1: the law that gives the table. */
Deno.test("with 50 % jitter static 1F1B takes 167, fifo 179, 155 and 150 with limits D, 1.5D and 2D", () => {
  const seen = means("fifo", [8, 12, 16]);
  for (const [i, stated] of [167, 179, 155, 150].entries()) {
    assert.ok(Math.abs(seen[i]! - stated) <= 0.01 * stated, `${seen[i]} for ${stated}`);
  }
  const [oneFOneB, d, oneAndAHalf, two] = seen as [number, number, number, number];
  assert.ok(two < oneAndAHalf && oneAndAHalf < oneFOneB && oneFOneB < d);
});

/** The table has 183 and 209; it does not say how slow, nor which. */
Deno.test("with one slow early worker and limit D fifo beats backward-first, without one it does not", () => {
  const both = (slowWorker?: { worker: number; factor: number }) =>
    (["fifo", "backward-first"] as const).map((order) =>
      means(order, [8], { slowWorker, draws: 16 })[1]!
    );
  for (const worker of [0, 1, 2]) {
    for (const factor of [1.25, 1.5, 2]) {
      const [fifo = 0, backwardFirst = 0] = both({ worker, factor });
      const where = `worker ${worker} takes ${factor} times as long: ${fifo} and ${backwardFirst}`;
      assert.ok(fifo < 0.97 * backwardFirst, where);
    }
  }
  const [fifo = 0, backwardFirst = 0] = both();
  assert.ok(backwardFirst < fifo);
});

Deno.test("draws depend on the seed and the action, not on the order, and stay within their law", () => {
  const schedule = createSchedule("1f1b", SIZE), model = modelOfCosts(schedule);
  const durations = (law: "around" | "above", seed: number, one = model) => {
    const { schedule: { lists }, timeline: { starts, ends } } = simulateStep({
      ...one,
      jitter: { law, amount: 0.5, seed },
    });
    const all = lists.flatMap((list, worker) =>
      [...list].map((action, i) =>
        [JSON.stringify(action), ends[worker]![i]! - starts[worker]![i]!] as const
      )
    );
    return new Map(all);
  };
  const first = durations("above", 1);
  const gpipe = durations("above", 1, modelOfCosts(createSchedule("gpipe", SIZE)));
  for (const [action, duration] of first) {
    assert.ok(Math.abs(duration - gpipe.get(action)!) < 1e-9, action);
  }
  const other = durations("above", 2);
  assert.ok([...first].filter(([action, time]) => time === other.get(action)).length < 5);
  for (
    const [law, low, high, mean] of [["above", 1, 1.5, 1.25], ["around", 0.5, 1.5, 1]] as const
  ) {
    const factors = [...durations(law, 3)].map(([action, time]) =>
      time / (action.includes('"F"') ? 1 : 2)
    );
    assert.ok(Math.min(...factors) > low - 1e-9 && Math.max(...factors) < high + 1e-9);
    assert.ok(Math.min(...factors) < low + 0.02 && Math.max(...factors) > high - 0.02);
    const seen = factors.reduce((a, b) => a + b) / factors.length;
    assert.ok(Math.abs(seen - mean) < 0.02, `${law}: ${seen}`);
  }
});

Deno.test("the choice is the fewest in flight within 1 % of the shortest mean, within the memory", () => {
  const chosen = (asked: object = {}, conditions: Parameters<typeof tryMailboxes>[1] = {}) => {
    const { pipelineLimit, order } = chooseMailbox(tryMailboxes({ ...SIZE, ...asked }, conditions));
    return [pipelineLimit, order];
  };
  assert.deepEqual(chosen(), [16, "fifo"]);
  assert.deepEqual(chosen({ activationLimit: 12.5 }), [12, "fifo"]);
  assert.deepEqual(chosen({ activationLimit: 3 }), chosen({ pipelineLimit: 3 }));
  assert.deepEqual(chosen({ pipelineLimit: 8 }), [8, "backward-first"]);
  const slow = { slowWorker: { worker: 1, factor: 1.3 } };
  assert.deepEqual(chosen({ pipelineLimit: 8 }, slow), [8, "fifo"]);
  assert.deepEqual(chosen({ order: "backward-first" }), [16, "backward-first"]);
  // Where nothing varies and messages take no time, fewer do.
  assert.deepEqual(chosen({}, { jitter: 0, costs: { send: 0 } }), [10, "backward-first"]);
  assert.deepEqual(chosen(), chosen());
});

Deno.test("a slow worker must be one of the pipeline", () => {
  assert.throws(() => tryMailboxes(SIZE, { slowWorker: { worker: 8, factor: 2 } }), {
    name: "RangeError",
    message: "Cannot simulate a slow worker: it must be from 0 to 7, received 8",
  });
});
