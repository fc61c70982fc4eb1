/**
 * Kernels without a device, whose actions end at absolute deadlines: they take the times that the
 * simulator draws, also on a busy machine. The parameter `emulated` of the module's URL is JSON.
 *
 * @module
 */

import { FakeStage } from "../actors/simulated_training/fake_stage.ts";
import type { Device, StageOptions, StageProgram } from "../kernels/mod.ts";
import {
  type ActionKind,
  type Costs,
  createSchedule,
  type MicroBatchLoad,
  modelOfCosts,
  type ScheduleOptions,
} from "../schedules/mod.ts";
import { readScenario, withScenario } from "../schedules/simulator/trials.ts";
import { actionTimes } from "../schedules/simulator/simulate.ts";

/** The schedule, the scenario and the times that a stage emulates. */
export interface Emulated {
  /** The schedule, and its options. */
  readonly schedule: string;
  readonly options: ScheduleOptions;
  /** The scenario, such as `lognormal:0.3`. */
  readonly scenario: string;
  /** The draw of the first step; each next step has the next one. */
  readonly seed: number;
  /** The time of a forward of 1/D of the model, of an I and of a W. */
  readonly unitMs: number;
  /** The times of each stage in ms, in place of `unitMs`. */
  readonly costs?: Costs;
  /** Factors of each micro-batch, in each step; those of the scenario unless given. */
  readonly loads?: readonly MicroBatchLoad[];
}

/** Returns the times of the actions of a step, as the simulator draws them. */
function timesOf({ schedule, options, scenario, unitMs, costs, loads }: Emulated, draw: number) {
  const usual = { forward: unitMs, backward: 2 * unitMs };
  const model = modelOfCosts(createSchedule(schedule, options), costs ?? usual);
  return actionTimes(withScenario({ ...model, loads }, readScenario(scenario)!, draw));
}

const asked: Emulated = JSON.parse(new URL(import.meta.url).searchParams.get("emulated")!);

/** Milliseconds between two actions that count as delays of the machine: the next action is no later. */
const GAP_MS = 10;

const sleeper = new Int32Array(new SharedArrayBuffer(4));

/** The end of the last action of this thread, which is a worker. */
let freeMs = 0;

class EmulatedStage extends FakeStage {
  readonly #stage: number;
  #timeOf = timesOf(asked, asked.seed);

  constructor(program: StageProgram, options: StageOptions) {
    super(program, options);
    this.#stage = Number(program.layers[0]!.name.split(".")[1]);
  }

  override forward(...args: Parameters<FakeStage["forward"]>) {
    return this.#take("F", args[0], () => super.forward(...args));
  }

  override backward(...args: Parameters<FakeStage["backward"]>) {
    return this.#take(args[1], args[0], () => super.backward(...args));
  }

  override beginStep(...args: Parameters<FakeStage["beginStep"]>): void {
    // The optimizer's step ends that of the data.
    this.#timeOf = timesOf(asked, asked.seed + args[0]);
    super.beginStep(...args);
  }

  async #take<T>(kind: ActionKind, microBatch: number, run: () => T): Promise<Awaited<T>> {
    const now = performance.now(), begin = now - freeMs < GAP_MS ? freeMs : now;
    const { workers } = asked.options, stage = this.#stage;
    const worker = stage < workers ? stage : 2 * workers - 1 - stage;
    freeMs = begin + this.#timeOf(worker, { kind, stage, microBatch });
    const result = await run();
    Atomics.wait(sleeper, 0, 0, Math.max(0, freeMs - performance.now()));
    return result;
  }
}

/** Opens the kernels of a stage. */
export const openEmulatedStage = (_: Device, program: StageProgram, options: StageOptions) =>
  new EmulatedStage(program, options);
