/**
 * Measures layers under the conditions of a run: a model is cut into as many stages as there are
 * workers, and all stages compute at the same time, each in its isolate.
 *
 * [Note: load] Kernels are slower when several workers run, as they share memory, caches and the clock
 * rate of the machine. So each layer is measured under each load, and only actions that start while
 * all probes compute count.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import process from "node:process";
import {
  ADAMW_DEFAULTS,
  type DeviceChoice,
  type ModelProgram,
  type Recompute,
  type StageOptions,
  type StageProgram,
} from "../../kernels/mod.ts";
import { cutIntoStages, type StageState } from "../../kernels/internal.ts";
import type { ActorRef, PlaceName, System } from "../runtime/mod.ts";
import { realClock } from "../runtime/world.ts";
import { drawBatch, drawWeights } from "./measure_links.ts";
import {
  forKinds,
  PROBE,
  type ProbeClosing,
  type ProbedKind,
  type ProbedStage,
  type ProbeMessage,
  type ProbeTimes,
  type TimedSum,
} from "./probe.ts";
import { factsKey, type LayerFacts, slicedFacts } from "./profile.ts";

/** A measured model. */
export interface ProbedModel {
  readonly program: ModelProgram;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Recomputation policy of the compiled model. */
  readonly recompute: Recompute;
}

/** Durations of one model under one load. */
export interface LoadTimes {
  /** Index of the probed model. */
  readonly model: number;
  /** Number of probes that computed at the same time. */
  readonly atOnce: number;
  /** Durations by kind of layer. */
  readonly layers: ReadonlyMap<string, LayerTimes>;
  /** Milliseconds of whole actions, for each stage and kind. */
  readonly actions: readonly Readonly<Record<ProbedKind, readonly number[]>>[];
  /** End of a step, for each stage. */
  readonly closing: readonly (ProbeClosing & { readonly parameters: number })[];
  /** Share of their cores that the probes got; undefined if it cannot be measured. */
  readonly cpuShare?: number | undefined;
}

/** Durations of a kind of layer. */
export interface LayerTimes {
  readonly facts: LayerFacts;
  readonly sums: Readonly<Record<ProbedKind, TimedSum>>;
}

/** A stage of a probe. */
interface Placed extends Pick<LoadTimes, "model" | "atOnce"> {
  readonly stage: ProbedStage;
}

/** Milliseconds before actions count, as a core is slower when it was idle. */
const START_MS = 60;

/** Limit of the factor by which a measurement is extended, and timeout of a reply. */
const LONGER_MAX = 64, TIMEOUT_MS = 600_000;

/** Minimum number of actions of each kind in a measurement. */
const ACTIONS_MIN = 2;

/** Returns whether each probe has measured enough actions of each kind. */
const isEnough = (times: readonly ProbeTimes[]): boolean =>
  times.length > 0 &&
  times.every(({ actions }) => Object.values(actions).every((ms) => ms.length >= ACTIONS_MIN));

/** Options of {@linkcode Probes}. */
interface ProbesOptions {
  readonly device: DeviceChoice;
  readonly models: readonly ProbedModel[];
  /** Numbers of workers that compute at the same time; each is measured. */
  readonly loads: readonly number[];
  /** Place of the probes. */
  readonly isolate: PlaceName;
}

/** Probes that compute the stages of models at the same time. */
export class Probes {
  readonly #placed: readonly Placed[][];
  readonly #actors: readonly ActorRef<ProbeMessage>[];
  /** Milliseconds of the last measurement, by model and load. */
  readonly #windows = new Map<string, number>();

  /** Starts probes. */
  constructor(private readonly system: System, private readonly options: ProbesOptions) {
    const { device, models, loads, isolate } = options;
    const how: StageOptions = { optimizer: ADAMW_DEFAULTS, backward: "split" };
    this.#placed = Array.from({ length: Math.max(...loads) }, () => []);
    for (const [model, { program }] of models.entries()) {
      const all = drawWeights(program), fields = drawBatch(program);
      for (const atOnce of loads) {
        const stages = cutIntoStages(program, Math.min(atOnce, program.layers.length));
        for (const [probe, placed] of this.#placed.slice(0, atOnce).entries()) {
          const stage = stages[probe % stages.length]!, weights = weightsOf(stage, all);
          placed.push({ model, atOnce, stage: { program: stage, options: how, weights, fields } });
        }
      }
    }
    this.#actors = this.#placed.map((placed, probe) =>
      system.spawn(PROBE, { device, stages: placed.map(({ stage }) => stage) }, {
        id: `probe ${probe}`,
        isolate,
      })
    );
  }

  /**
   * Measures each model under each load for `forMs` milliseconds.
   *
   * @param now the clock of the probes. Default: that of all isolates.
   */
  async measure(forMs: number, now: () => number = realClock().now): Promise<LoadTimes[]> {
    const all: LoadTimes[] = [];
    for (const model of this.options.models.keys()) {
      for (const atOnce of this.options.loads) {
        all.push(await this.#measureLoad(model, atOnce, forMs, now));
      }
    }
    return all;
  }

  async #measureLoad(
    model: number,
    atOnce: number,
    forMs: number,
    now: () => number,
  ): Promise<LoadTimes> {
    const used = this.#actors.slice(0, atOnce).map((actor, i) => {
      const index = this.#placed[i]!.findIndex((one) =>
        one.model === model && one.atOnce === atOnce
      );
      return { actor, index, ...this.#placed[i]![index]!.stage };
    });
    const askAll = <R>(make: (stage: number) => ProbeMessage): Promise<R[]> =>
      Promise.all(
        used.map(({ actor, index }) =>
          this.system.ask<ProbeMessage, R>(actor, make(index), { timeoutMs: TIMEOUT_MS })
        ),
      );
    let times: ProbeTimes[] = [], cpuShare: number | undefined;
    // If there were too few actions, this and later measurements take longer.
    const key = `${model} ${atOnce}`;
    let ms = this.#windows.get(key) ?? forMs;
    for (; !isEnough(times) && ms <= LONGER_MAX * forMs; ms *= 2) {
      this.#windows.set(key, ms);
      const fromMs = now() + START_MS, untilMs = fromMs + ms;
      const replies = askAll<ProbeTimes>((stage) => ({ type: "Compute", stage, fromMs, untilMs }));
      // Only threads count towards the CPU time of this process.
      const share = this.options.isolate === "worker" ? cpuShareOf(atOnce, ms) : undefined;
      times = await replies;
      cpuShare = await share;
    }
    const closing = await askAll<ProbeClosing>((stage) => ({ type: "Close", stage, steps: 1 }));
    const facts = used.map(({ program, options }) => slicedFacts(program, options)[0]!);
    const layers = new Map<string, LayerTimes>();
    for (const [i, { program }] of used.entries()) {
      for (const [index, sums] of times[i]!.programs.entries()) {
        const layer = program.layers.findIndex((one) => one.program === index);
        addTimes(layers, facts[i]![layer]!, sums);
      }
    }
    return {
      ...{ model, atOnce, layers, cpuShare },
      actions: times.map(({ actions }) => actions),
      closing: closing.map((one, i) => ({
        ...one,
        parameters: facts[i]!.reduce((sum, { parameters }) => sum + parameters, 0),
      })),
    };
  }
}

/** Returns the weights of a stage. */
function weightsOf({ programs, layers }: StageProgram, all: StageState["weights"]) {
  const names = layers.flatMap(({ prefix, program }) =>
    programs[program]!.parameters.map(({ name }) => prefix + name)
  );
  return new Map(names.map((name) => [name, all.get(name)!]));
}

/** Measures the share of `atOnce` cores that this process gets while all probes compute. */
async function cpuShareOf(atOnce: number, forMs: number): Promise<number> {
  const cpuMs = () => (({ user, system }) => (user + system) / 1000)(process.cpuUsage());
  await delay(START_MS);
  const before = cpuMs(), start = performance.now();
  await delay(forMs);
  return Math.min(1, (cpuMs() - before) / (performance.now() - start) / atOnce);
}

/** Adds durations to those of a kind of layer; equal layers share an entry. */
export function addTimes(
  all: Map<string, LayerTimes>,
  facts: LayerFacts,
  more: LayerTimes["sums"],
): void {
  const key = factsKey(facts), { sums } = all.get(key) ?? {};
  const added = forKinds((kind) => ({
    runs: more[kind].runs + (sums?.[kind].runs ?? 0),
    ms: more[kind].ms + (sums?.[kind].ms ?? 0),
  }));
  all.set(key, { facts, sums: added });
}
