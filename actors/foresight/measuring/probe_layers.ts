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

import process from "node:process";
import { delay } from "@std/async/delay";
import {
  type Batch,
  cutIntoStages,
  type DeviceChoice,
  type ModelProgram,
  type OptimizerOptions,
  type Recompute,
  type StageOptions,
  type StageProgram,
  type StageState,
} from "../../../kernels/mod.ts";
import type { ActorRef, PlaceName, System } from "../../runtime/mod.ts";
import { realClock } from "../../runtime/world/clock.ts";
import { factsKey, type LayerFacts, layerFacts } from "../profile/layer_facts.ts";
import {
  PROBE,
  type ProbeClosing,
  type ProbedKind,
  type ProbedStage,
  type ProbeMessage,
  type ProbeTimes,
  type TimedSum,
} from "./probe.ts";

/** A model that is measured. */
export interface ProbedModel {
  readonly program: ModelProgram;
  readonly weights: StageState["weights"];
  /** A micro-batch. */
  readonly fields: Batch;
  /** Samples of it. */
  readonly microBatch: number;
  /** The policy that the model was compiled with. */
  readonly recompute: Recompute;
}

/** What is to be measured, and where. */
export interface ProbeRequest {
  readonly device: DeviceChoice;
  readonly models: readonly ProbedModel[];
  /** How many compute at once: each number is measured. */
  readonly loads: readonly number[];
  readonly optimizer: OptimizerOptions;
  /** Where the probes live. */
  readonly isolate: PlaceName;
}

/** What one model took under one load. */
export interface LoadTimes {
  /** Index of the model in the request. */
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

/** Probes that are ready. */
export interface Probes {
  /**
   * Measures each model under each load for so many milliseconds.
   *
   * @param now the clock of the probes. Default: that of all isolates.
   */
  measure(forMs: number, now?: () => number): Promise<LoadTimes[]>;
}

/** A stage that a probe has, and where the measurements of it go. */
interface Placed {
  readonly model: number;
  readonly atOnce: number;
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
  times.every(({ actions: { F, B, I, W } }) =>
    [F, B, I, W].every((ms) => ms.length >= ACTIONS_MIN)
  );

/** Starts the probes of a request. */
export function openProbes(system: System, request: ProbeRequest): Probes {
  const { device, models, loads, isolate, optimizer } = request;
  const options: StageOptions = { optimizer, backward: "split" };
  const placed: Placed[][] = Array.from({ length: Math.max(...loads) }, () => []);
  for (const [model, { program, weights, fields }] of models.entries()) {
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
  return {
    async measure(forMs, now = realClock().now) {
      const all: LoadTimes[] = [];
      for (const model of models.keys()) {
        for (const atOnce of loads) {
          const what = { model, atOnce, forMs, windows, now, isolate };
          all.push(await measureLoad(system, probes, placed, what));
        }
      }
      return all;
    },
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
  const facts = asked.map(({ stage }) => layerFacts(stage.program, stage.options));
  return {
    model,
    atOnce,
    layers: sumLayers(asked.map(({ stage }, i) => [stage.program, facts[i]!, times[i]!])),
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

/** Equal layers count together, whichever probe had them. */
export function sumLayers(
  measured: readonly (readonly [StageProgram, readonly LayerFacts[], ProbeTimes])[],
): Map<string, LayerTimes> {
  const all = new Map<string, LayerTimes>();
  for (const [{ programs, layers }, facts, times] of measured) {
    for (const index of programs.keys()) {
      const fact = facts[layers.findIndex(({ program }) => program === index)]!;
      addTimes(all, fact, times.programs[index]!);
    }
  }
  return all;
}

/** Adds to what is known of a kind of layer. */
export function addTimes(
  all: Map<string, LayerTimes>,
  facts: LayerFacts,
  more: LayerTimes["sums"],
): void {
  const key = factsKey(facts), { F, B, I, W } = more;
  const known = all.get(key);
  if (!known) {
    all.set(key, { facts, sums: { F: { ...F }, B: { ...B }, I: { ...I }, W: { ...W } } });
    return;
  }
  for (const kind of ["F", "B", "I", "W"] as const) {
    known.sums[kind].runs += more[kind].runs;
    known.sums[kind].ms += more[kind].ms;
  }
}
