/** Scenarios: the ways in which times of actions, workers and micro-batches vary. */

import { type MicroBatchLoad, type StageModel, type StepModel, uniform } from "./model.ts";

/** A way in which times vary, with the amounts of its law. */
export interface Scenario {
  /** The law and its amounts as text, such as `uniform:0.1`. */
  readonly text: string;
  readonly law: keyof typeof SCENARIO_LAWS;
  readonly amounts: readonly number[];
}

/** The laws: the amounts that each takes, the values that these may have, and what it varies. */
export const SCENARIO_LAWS = {
  none: { amounts: 0, most: 0, help: "" },
  uniform: { amounts: 1, most: 1, help: ":A (each F, I and W times a number from 1 - A to 1 + A)" },
  above: {
    amounts: 1,
    most: Infinity,
    help: ":A (each F, I and W times a number from 1 to 1 + A)",
  },
  lognormal: {
    amounts: 1,
    most: Infinity,
    help: ":S (each F, I and W times e^(S z), z from the standard normal distribution)",
  },
  slow: {
    amounts: 1,
    most: Infinity,
    help: ":T (one worker, in each draw the next one, takes T times as long)",
  },
  stages: { amounts: 1, most: 1, help: ":A (each stage times a number from 1 - A to 1 + A)" },
  multimodal: {
    amounts: 2,
    most: Infinity,
    help: ":PxT (of the micro-batches a share P has T times the work, messages and bytes)",
  },
  lengths: {
    amounts: 1,
    most: Infinity,
    help: ":R (lengths L log-uniform from 1/sqrt(R) to sqrt(R): W, messages and bytes times L, " +
      "F times 3/4 L + 1/4 L^2, I times 1/2 L + 1/2 L^2)",
  },
} as const;

/** Reads a scenario such as `none`, `lognormal:0.3` or `multimodal:0.2x3`; undefined if it is none. */
export function readScenario(text: string): Scenario | undefined {
  const [name = "", given] = text.split(":"), amounts = given?.split("x").map(Number) ?? [];
  if (!Object.hasOwn(SCENARIO_LAWS, name)) return undefined;
  const law = name as Scenario["law"], { amounts: count, most } = SCENARIO_LAWS[law];
  const isUsable = (amount: number) => amount > 0 && amount <= most && Number.isFinite(amount);
  if (amounts.length !== count || !amounts.every(isUsable)) return undefined;
  if (law === "multimodal" && amounts[0]! > 1 || law === "stages" && amounts[0] === 1) {
    return undefined;
  }
  return { text, law, amounts };
}

/** A step with the variation of a scenario in one draw. */
export function withScenario(model: StepModel, scenario: Scenario, seed: number): StepModel {
  const { law, amounts: [amount = 0] } = scenario, { workers } = model.schedule;
  const { slowdowns = new Array<number>(workers).fill(1) } = model;
  switch (law) {
    case "none":
      return model;
    case "uniform":
      return { ...model, jitter: { law: "around", amount, seed } };
    case "above":
    case "lognormal":
      return { ...model, jitter: { law, amount, seed } };
    case "slow":
      return {
        ...model,
        slowdowns: slowdowns.map((s, w) => w === seed % workers ? s * amount : s),
      };
    case "stages": {
      const stages = model.stages.map((one, stage) => {
        const draw = uniform(seed, 1, { kind: "F", microBatch: 0 }, stage);
        return timesFactor(one, 1 + amount * (2 * draw - 1));
      });
      return { ...model, stages };
    }
    case "multimodal":
    case "lengths":
      return { ...model, loads: loadsOf(scenario, model.schedule.microBatches, seed) };
  }
}

/** A stage whose actions take a factor of their times. */
function timesFactor(stage: StageModel, factor: number): StageModel {
  const { forwardMs, backwardMs, inputMs, weightMs, recomputeMs } = stage;
  const scaled = (ms: number | undefined) => ms === undefined ? ms : ms * factor;
  return {
    ...stage,
    forwardMs: forwardMs * factor,
    backwardMs: backwardMs * factor,
    inputMs: scaled(inputMs),
    weightMs: scaled(weightMs),
    recomputeMs: scaled(recomputeMs),
  };
}

/** The loads of micro-batches in one draw of a scenario; undefined if all are equal. */
export function loadsOf(
  { law, amounts: [amount = 0, factor = 1] }: Scenario,
  microBatches: number,
  seed: number,
): MicroBatchLoad[] | undefined {
  if (law !== "multimodal" && law !== "lengths") return undefined;
  return Array.from({ length: microBatches }, (_, microBatch) => {
    const draw = uniform(seed, 1, { kind: "F", microBatch }, 0);
    if (law === "multimodal") return alike(draw < amount ? factor : 1);
    const length = amount ** (draw - 0.5), square = length ** 2;
    return {
      ...alike(length),
      F: 0.75 * length + 0.25 * square,
      I: 0.5 * length + 0.5 * square,
    };
  });
}

const alike = (load: number): MicroBatchLoad => ({
  F: load,
  I: load,
  W: load,
  send: load,
  bytes: load,
});
