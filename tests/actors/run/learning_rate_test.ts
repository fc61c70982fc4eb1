/** Learning rates of one's own, and how a run that goes on follows them. */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { inFolder } from "../../in_folder.ts";
import { batches, RINGS } from "./own_layers.ts";

const run = (options: Partial<TrainOptions>) =>
  Array.fromAsync(train({
    ...{ model: RINGS, data: batches(), steps: 6, device: "reference", runtime: "local" },
    ...options,
  } as TrainOptions));

const hashOf = async (options: Partial<TrainOptions>) => {
  const last = (await run(options)).at(-1)!;
  assert.ok(last.type === "end");
  return last.weightsHash;
};

Deno.test("a function is asked for each step, and gives the bits of the schedule that it says", async () => {
  const asked: number[] = [];
  const halving = (step: number) => (asked.push(step), 0.1 * 0.5 ** (step - 1));
  assert.notEqual(await hashOf({ learningRate: halving }), await hashOf({ learningRate: 0.1 }));
  assert.deepEqual([...new Set(asked)], [1, 2, 3, 4, 5, 6]);
  const linear = { rate: 0.1, schedule: "linear", warmup: 2, minRate: 0.02 } as const;
  const own = (step: number) => step <= 2 ? 0.05 * step : 0.02 + 0.08 * (1 - (step - 3) / 4);
  assert.equal(await hashOf({ learningRate: own }), await hashOf({ learningRate: linear }));
});

for (
  const [name, learningRate] of [
    ["a function", (step: number) => 0.1 / step],
    ["linear", { rate: 0.1, schedule: "linear", warmup: 2, minRate: 0.01 }],
  ] as const
) {
  Deno.test(`a run with the learning rate of ${name} goes on with the bits of one that was not cut`, () =>
    inFolder(async (directory) => {
      const checkpoint = { directory, every: 2, config: {} };
      const hash = await hashOf({ learningRate, checkpoint });
      for (const step of [2, 4]) {
        const resume = await readCheckpoint(`${directory}/step-0000000${step}`);
        assert.equal(await hashOf({ learningRate, resume }), hash, `from step ${step}`);
      }
    }));
}

Deno.test("what a function gives must be a rate, at the door and in every step", async () => {
  const events: string[] = [];
  for (
    const [wrong, type, received] of [
      [NaN, RangeError, "a number from 0, received NaN"],
      [Infinity, RangeError, "a number from 0, received Infinity"],
      [-1, RangeError, "a number from 0, received -1"],
      ["0.1", TypeError, 'a number from 0, received "0.1"'],
      [undefined, TypeError, "given, received undefined"],
    ] as const
  ) {
    for (const at of [1, 3]) {
      const learningRate = (step: number) => step === at ? wrong as number : 0.1;
      const message = `Cannot run step ${at}: the learning rate must be ${received}`;
      const going = train({
        model: RINGS,
        data: batches(),
        steps: 4,
        learningRate,
        runtime: "local",
      });
      const ended = (async () => {
        for await (const { type } of going) events.push(`${at} ${type}`);
      })();
      await assert.rejects(ended, (error) => error instanceof type && error.message === message);
    }
  }
  assert.ok(!events.some((event) => event.startsWith("1 ")), "nothing runs with a bad first rate");
  assert.ok(events.includes("3 step"));
});

Deno.test("a norm of 0 clips nothing, as none does, also where nothing could be clipped", async () => {
  assert.equal(await hashOf({ clip: 0 }), await hashOf({}));
  assert.notEqual(await hashOf({ clip: 0.01 }), await hashOf({}));
  const unflushed = { workers: 2, schedule: "pipedream" } as const;
  assert.equal(await hashOf({ ...unflushed, clip: 0 }), await hashOf(unflushed));
});
