/**
 * Measures layers as they are in a run: a model is cut into as many stages as workers compute at
 * once, and each computes its own in an isolate of its own, all at the same time.
 *
 * [Note: the load that will be there] Kernels are slower when several workers run: they share memory,
 * caches and the clock rate of the machine. So each layer is measured under each load, and what
 * counts is what began while all of them computed.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import process from "node:process";
import {
  ADAMW_DEFAULTS,
  cutIntoStages,
  type DeviceChoice,
  type ModelProgram,
  type Recompute,
  type StageOptions,
  type StageProgram,
  type StageState,
} from "../../kernels/mod.ts";
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

/** A model that is measured. */
export interface ProbedModel {
  readonly program: ModelProgram;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** The policy that the model was compiled with. */
  readonly recompute: Recompute;
}

/** What one model took under one load. */
export interface LoadTimes {
  /** Index of the probed model. */
  readonly model: number;
  /** How many computed at once. */
  readonly atOnce: number;
  /** For each kind of layer, of each action. */
  readonly layers: ReadonlyMap<string, LayerTimes>;
  /** Milliseconds of whole actions, for each stage and kind. */
  readonly actions: readonly Readonly<Record<ProbedKind, readonly number[]>>[];
  /** The end of a step, of each stage. */
  readonly closing: readonly (ProbeClosing & { readonly parameters: number })[];
  /** Share of the time of its cores that the probes got; undefined where nothing measures it. */
  readonly cpuShare?: number | undefined;
}

/** A kind of layer, and how long its parts took. */
export interface LayerTimes {
  readonly facts: LayerFacts;
  readonly sums: Readonly<Record<ProbedKind, TimedSum>>;
}

/**
 * Measures each model under each load for `forMs` milliseconds, by the clock of the probes: the clock
 * of all isolates by default.
 */
type Probes = (forMs: number, now?: () => number) => Promise<LoadTimes[]>;

/** A stage that a probe has, and where the measurements of it go. */
interface Placed extends Pick<LoadTimes, "model" | "atOnce"> {
  readonly stage: ProbedStage;
}

/** All probes compute for so long before what they do counts: after a rest a core is faster. */
const START_MS = 60;

/** A measurement may be so many times as long, and an answer takes no longer than this. */
const LONGER_MAX = 64, TIMEOUT_MS = 600_000;

/** Actions of each kind that a measurement has at least. */
const ACTIONS_MIN = 2;

/** Whether each probe has measured all that it can, often enough. */
const isEnough = (times: readonly ProbeTimes[]): boolean =>
  times.length > 0 &&
  times.every(({ actions }) => Object.values(actions).every((ms) => ms.length >= ACTIONS_MIN));

/** Starts probes. */
export function openProbes(
  system: System,
  { device, models, loads, isolate }: {
    readonly device: DeviceChoice;
    readonly models: readonly ProbedModel[];
    /** Numbers of workers that compute at the same time, each of which is measured. */
    readonly loads: readonly number[];
    /** The place of the probes. */
    readonly isolate: PlaceName;
  },
): Probes {
  const options: StageOptions = { optimizer: ADAMW_DEFAULTS, backward: "split" };
  const placed: Placed[][] = Array.from({ length: Math.max(...loads) }, () => []);
  for (const [model, { program }] of models.entries()) {
    const weights = drawWeights(program), fields = drawBatch(program);
    for (const atOnce of loads) {
      const stages = cutIntoStages(program, Math.min(atOnce, program.layers.length));
      for (let probe = 0; probe < atOnce; probe++) {
        const stage = stages[probe % stages.length]!;
        placed[probe]!.push({
          model,
          atOnce,
          stage: { program: stage, options, weights: weightsOf(stage, weights), fields },
        });
      }
    }
  }
  const probes = placed.map((stages, probe): ActorRef<ProbeMessage> =>
    system.spawn(PROBE, { device, stages: stages.map(({ stage }) => stage) }, {
      id: `probe ${probe}`,
      isolate,
    })
  );
  const windows = new Map<string, number>();
  return async (forMs, now = realClock().now) => {
    const all: LoadTimes[] = [];
    for (const model of models.keys()) {
      for (const atOnce of loads) {
        const what = { model, atOnce, forMs, windows, now, isolate };
        all.push(await measureLoad(system, probes, placed, what));
      }
    }
    return all;
  };
}

/** Those weights that a stage has. */
function weightsOf({ programs, layers }: StageProgram, all: StageState["weights"]) {
  const names = layers.flatMap(({ prefix, program }) =>
    programs[program]!.parameters.map(({ name }) => prefix + name)
  );
  return new Map(names.map((name) => [name, all.get(name)!]));
}

async function measureLoad(
  system: System,
  probes: readonly ActorRef<ProbeMessage>[],
  placed: readonly (readonly Placed[])[],
  { model, atOnce, forMs, windows, now, isolate }: {
    readonly model: number;
    readonly atOnce: number;
    readonly forMs: number;
    /** How long it took last time, by model and load. */
    readonly windows: Map<string, number>;
    readonly now: () => number;
    readonly isolate: PlaceName;
  },
): Promise<LoadTimes> {
  const asked = probes.slice(0, atOnce).map((probe, i) => {
    const index = placed[i]!.findIndex((one) => one.model === model && one.atOnce === atOnce);
    return { probe, index, ...placed[i]![index]! };
  });
  const timeoutMs = TIMEOUT_MS;
  let times: ProbeTimes[] = [], cpuShare: number | undefined;
  // Longer, where a busy machine or a large model has left too few; then also from now on.
  const key = `${model} ${atOnce}`;
  for (let ms = windows.get(key) ?? forMs; !isEnough(times) && ms <= LONGER_MAX * forMs; ms *= 2) {
    windows.set(key, ms);
    const fromMs = now() + START_MS;
    const compute = { type: "Compute", fromMs, untilMs: fromMs + ms } as const;
    const replies = asked.map(({ probe, index }) =>
      system.ask<ProbeMessage, ProbeTimes>(probe, { ...compute, stage: index }, { timeoutMs })
    );
    // Threads count as this process; of other processes and of a busy thread nothing is known.
    const share = isolate === "worker" ? cpuShareOf(atOnce, ms) : undefined;
    times = await Promise.all(replies);
    cpuShare = await share;
  }
  const closing = await Promise.all(
    asked.map(({ probe, index }) =>
      system.ask<ProbeMessage, ProbeClosing>(probe, { type: "Close", stage: index, steps: 1 }, {
        timeoutMs,
      })
    ),
  );
  const facts = asked.map(({ stage }) => slicedFacts(stage.program, stage.options)[0]!);
  const layers = new Map<string, LayerTimes>();
  for (const [i, { stage: { program } }] of asked.entries()) {
    for (const [index, sums] of times[i]!.programs.entries()) {
      addTimes(layers, facts[i]![program.layers.findIndex((one) => one.program === index)]!, sums);
    }
  }
  return {
    model,
    atOnce,
    layers,
    actions: times.map(({ actions }) => actions),
    cpuShare,
    closing: closing.map((one, i) => ({
      ...one,
      parameters: facts[i]!.reduce((sum, { parameters }) => sum + parameters, 0),
    })),
  };
}

/** Share of the time of `atOnce` cores that this process gets for so long, once all probes compute. */
async function cpuShareOf(atOnce: number, forMs: number): Promise<number> {
  const cpuMs = () => (({ user, system }) => (user + system) / 1000)(process.cpuUsage());
  await delay(START_MS);
  const before = cpuMs(), start = performance.now();
  await delay(forMs);
  return Math.min(1, (cpuMs() - before) / (performance.now() - start) / atOnce);
}

/** Adds times to a kind of layer: equal layers count together. */
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
