/**
 * Measures the costs of a machine in rounds. Each round measures everything once, so that other
 * measurements can take place in the same rounds, at the same speed of the machine.
 *
 * [Note: sleeping workers] A probe computes all the time. A worker of a pipeline sleeps until a message
 * arrives and wakes on any core, maybe next to its sender, so its actions take longer than those of
 * a probe. The difference is measured with separate runs, one for each load, whose steps are not
 * used to check a profile.
 *
 * Each layer is measured under each load ([Note: load] in predict.ts), and only actions that start
 * while all probes compute count. Under the highest load it is also measured in larger stages: a
 * worker that holds more of a model finds less of it in its cache.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import process from "node:process";
import {
  assertMachineHolds,
  cutIntoStages,
  planMemory,
  type StageState,
} from "../../kernels/internal.ts";
import {
  ADAMW_DEFAULTS,
  compileModel,
  type DeviceChoice,
  type Model,
  type ModelProgram,
  type Precision,
  type Recompute,
  type StageProgram,
} from "../../kernels/mod.ts";
import { ISOLATE_BYTES } from "../options/limits.ts";
import type { StepOutcome } from "../pipeline/step.ts";
import type { RunDevices } from "../run/devices.ts";
import { totalMemory } from "../run/memory.ts";
import { computes, readSpan, readStep, type Span } from "../run/timeline.ts";
import type { ActorRef, PlaceName, System } from "../runtime/mod.ts";
import { realClock } from "../runtime/world.ts";
import { createSystem } from "../transports/system.ts";
import { mapFields, openLayerCosts } from "./costs.ts";
import {
  drawBatch,
  drawWeights,
  linkOf,
  type MeasuredRun,
  openCopiesRun,
  openLink,
  openMeasuredRun,
  openTinyRun,
  overheadsOf,
  type PlaceOptions,
  reduceMs,
  sumCost,
  takeTinySteps,
  type TinySteps,
  type Trips,
} from "./measure_links.ts";
import { busyIntegral, pausesOf } from "./predict.ts";
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
import {
  factsKey,
  type LayerCost,
  type LayerFacts,
  type LinearCost,
  linearMs,
  type LoadCost,
  meanOf,
  median,
  parametersOf,
  type Profile,
  PROFILE_FORMAT,
  PROFILE_VERSION,
  scaledCost,
  slicedFacts,
  type Spread,
  thisMachine,
  variationOf,
} from "./profile.ts";

/** A measured model. */
interface ProbedModel {
  readonly program: ModelProgram;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Recomputation policy of the compiled model. */
  readonly recompute: Recompute;
}

/** Workers that compute at the same time. */
export interface Load {
  /** Number of workers. */
  readonly atOnce: number;
  /** Number of stages that the model is cut into; each worker holds one. */
  readonly stages: number;
}

/** Trained elements of a model above which all its stages exceed any cache. */
const CACHED_MAX = 2 ** 26;

/** Returns the loads that are measured, for numbers of workers. */
function loadsOf(numbers: readonly number[], programs: readonly ModelProgram[]): Load[] {
  const most = Math.max(...numbers);
  const isCached = programs.every((one) => parametersOf(slicedFacts(one)[0]!) <= CACHED_MAX);
  const larger = numbers.filter((stages) => isCached && stages < most && most % stages === 0);
  return [
    ...numbers.map((atOnce) => ({ atOnce, stages: atOnce })),
    ...larger.map((stages) => ({ atOnce: most, stages })),
  ];
}

/** Durations of one model under one load. */
export interface LoadTimes extends Load {
  /** Index of the probed model. */
  readonly model: number;
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
interface LayerTimes {
  readonly facts: LayerFacts;
  readonly sums: Readonly<Record<ProbedKind, TimedSum>>;
}

/** A model under a load. */
interface ProbedLoad extends Load {
  readonly model: number;
  /** The stage of each probe that computes, and its index there. */
  readonly used: readonly { readonly program: StageProgram; readonly index: number }[];
  /** Milliseconds of the last measurement. */
  ms?: number;
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
  /** Measured loads. */
  readonly loads: readonly Load[];
  /** Place of the probes. */
  readonly isolate: PlaceName;
}

/** Probes that compute the stages of models at the same time. */
export class Probes {
  readonly #loads: ProbedLoad[] = [];
  readonly #actors: readonly ActorRef<ProbeMessage>[];

  /** Starts probes. */
  constructor(private readonly system: System, private readonly options: ProbesOptions) {
    const { device, models, loads, isolate } = options;
    const placed = Array.from({ length: mostOf(loads) }, (): ProbedStage[] => []);
    for (const [model, { program }] of models.entries()) {
      const all = drawWeights(program), fields = drawBatch(program);
      for (const load of loads) {
        const stages = cutIntoStages(program, Math.min(load.stages, program.layers.length));
        const used = placed.slice(0, load.atOnce).map((own, probe) => {
          const program = stages[probe % stages.length]!, weights = weightsOf(program, all);
          return { program, index: own.push({ program, weights, fields }) - 1 };
        });
        this.#loads.push({ ...load, model, used });
      }
    }
    this.#actors = placed.map((stages, probe) =>
      system.spawn(PROBE, { device, stages }, { id: `probe ${probe}`, isolate })
    );
  }

  /**
   * Measures each model under each load for `forMs` milliseconds.
   *
   * @param now the clock of the probes. Default: that of all isolates.
   */
  async measure(forMs: number, now: () => number = realClock().now): Promise<LoadTimes[]> {
    const all: LoadTimes[] = [];
    for (const load of this.#loads) all.push(await this.#measureLoad(load, forMs, now));
    return all;
  }

  async #measureLoad(
    load: ProbedLoad,
    forMs: number,
    now: () => number,
  ): Promise<LoadTimes> {
    const { model, atOnce, stages, used } = load;
    const askAll = <R>(make: (stage: number) => ProbeMessage): Promise<R[]> =>
      Promise.all(
        used.map(({ index }, probe) =>
          this.system.ask<ProbeMessage, R>(this.#actors[probe]!, make(index), {
            timeoutMs: TIMEOUT_MS,
          })
        ),
      );
    let times: ProbeTimes[] = [], cpuShare: number | undefined;
    // If there were too few actions, this and later measurements take longer.
    for (let ms = load.ms ?? forMs; !isEnough(times) && ms <= LONGER_MAX * forMs; ms *= 2) {
      load.ms = ms;
      const fromMs = now() + START_MS, untilMs = fromMs + ms;
      const replies = askAll<ProbeTimes>((stage) => ({ type: "Compute", stage, fromMs, untilMs }));
      // Only threads count towards the CPU time of this process.
      const share = this.options.isolate === "worker" ? cpuShareOf(atOnce, ms) : undefined;
      times = await replies;
      cpuShare = await share;
    }
    const closing = await askAll<ProbeClosing>((stage) => ({ type: "Close", stage }));
    const facts = used.map(({ program }) => slicedFacts(program)[0]!);
    const layers = new Map<string, LayerTimes>();
    for (const [i, { program }] of used.entries()) {
      for (const [index, sums] of times[i]!.programs.entries()) {
        const layer = program.layers.findIndex((one) => one.program === index);
        addTimes(layers, facts[i]![layer]!, sums);
      }
    }
    return {
      ...{ model, atOnce, stages, layers, cpuShare },
      actions: times.map(({ actions }) => actions),
      closing: closing.map((one, i) => ({ ...one, parameters: parametersOf(facts[i]!) })),
    };
  }
}

/** Returns the most workers that compute at the same time. */
const mostOf = (loads: readonly Load[]): number => Math.max(...loads.map(({ atOnce }) => atOnce));

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
function addTimes(
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

/** Steps of a run with one model and load. */
export interface CalibratedLoad extends Load {
  /** Index of the measured model. */
  readonly model: number;
  /** Traces of the workers, for each step. */
  readonly steps: StepOutcome["traces"][];
}

/** Calibrates the costs of the layers of each model, and of loads. */
export function calibrate(
  { layers, loads, programs }: {
    readonly layers: readonly (readonly LayerCost[])[];
    readonly loads: readonly LoadCost[];
    readonly programs: readonly ModelProgram[];
  },
  runs: readonly CalibratedLoad[],
): { readonly layers: readonly LayerCost[]; readonly loads: readonly LoadCost[] } {
  const endings = new Map<number, number[]>();
  const calibrated = layers.map((costs, model) => {
    let known = costs;
    for (const run of runs.filter((one) => one.model === model && one.steps.length > 0)) {
      const { atOnce, steps } = run;
      const stages = cutIntoStages(programs[model]!, run.stages).map((one) => slicedFacts(one)[0]!);
      const held = parametersOf(stages.flat()) / stages.length;
      const factor = actionFactor(costs, stages, held, steps);
      known = known.map((cost) =>
        cost.atOnce === atOnce && (cost.heldParameters ?? held) === held
          ? scaledCost(cost, factor)
          : cost
      );
      const once = loads.find((one) => one.atOnce === atOnce);
      if (!once || run.stages < atOnce) continue;
      endings.set(atOnce, [...endings.get(atOnce) ?? [], endFactor(once, stages, steps)]);
    }
    return known;
  });
  return {
    layers: calibrated.flat(),
    loads: loads.map((one) => scaledOnce(one, meanOf(endings.get(one.atOnce) ?? [1]))),
  };
}

/** Returns the ratio of measured to predicted durations of actions under the load of their steps. */
function actionFactor(
  costs: readonly LayerCost[],
  stages: readonly (readonly LayerFacts[])[],
  held: number,
  steps: CalibratedLoad["steps"],
): number {
  const [first] = costs;
  if (!first) return 1;
  const found = openLayerCosts(costs, first.device);
  return medianFactor(steps.map((traces) => {
    let tookMs = 0, predictedMs = 0;
    const spans = traces.flatMap((trace, worker) => trace.map((one) => readSpan(one, worker)))
      .filter(computes);
    const load = meanLoad(spans);
    for (const { start, end, kind, stages: [stage] } of spans) {
      const name = kind === "F" ? "forwardMs" : "backwardMs";
      tookMs += end - start;
      predictedMs += stages[stage!]!
        .reduce((ms, facts) => ms + found.layer(facts, load, held)[name], 0);
    }
    return tookMs / predictedMs;
  }));
}

/** Returns the median of the factors of several steps, which one slow step does not change. */
function medianFactor(factors: readonly number[]): number {
  const finite = factors.filter(Number.isFinite);
  return finite.length > 0 ? Math.max(FACTOR_MIN, median(finite)) : 1;
}

/** Minimum ratio: lower values are noise, since workers are not much faster than probes. */
const FACTOR_MIN = 0.5;

/** Returns the mean number of workers that compute during an action. */
function meanLoad(spans: readonly Span[]): number {
  const busyUntil = busyIntegral(
    [Float64Array.from(spans, ({ start }) => start)],
    [Float64Array.from(spans, ({ end }) => end)],
  );
  let ms = 0, busyMs = 0;
  for (const { start, end } of spans) {
    ms += end - start;
    busyMs += busyUntil(end) - busyUntil(start);
  }
  return ms === 0 ? 1 : busyMs / ms;
}

/** Returns the ratio of measured to predicted durations of the optimizer and norms. */
function endFactor(
  { optimizer, norm }: LoadCost,
  stages: readonly (readonly LayerFacts[])[],
  steps: CalibratedLoad["steps"],
): number {
  return medianFactor(steps.map((traces) => {
    let tookMs = 0, predictedMs = 0;
    for (const [worker, trace] of traces.entries()) {
      const parameters = parametersOf(stages[worker]!);
      predictedMs += linearMs(optimizer, parameters) + linearMs(norm, parameters);
      for (const one of trace) {
        const { kind, start, end } = readSpan(one, worker);
        if (kind === "optimizer" || kind === "reduce") tookMs += end - start;
      }
    }
    return tookMs / predictedMs;
  }));
}

const scaledOnce = ({ atOnce, ...costs }: LoadCost, factor: number): LoadCost => ({
  atOnce,
  ...mapFields(costs, (cost) => mapFields(cost, (ms) => factor * ms)),
});

/** Properties of all measured layers. */
interface MeasuredFacts {
  readonly device: string;
  readonly sizes: Readonly<Record<string, number>>;
  readonly models: readonly Pick<ProbedModel, "microBatch" | "recompute">[];
}

/** Returns the costs of layers: the median of the rounds' means, which one slow round does not change. */
export function layerCosts(
  rounds: readonly LoadTimes[],
  { device, sizes, models }: MeasuredFacts,
): LayerCost[] {
  const groups = Map.groupBy(rounds, keyOf);
  return [...groups.values()].flatMap((group) => {
    const { model, atOnce, closing } = group[0]!, { microBatch, recompute } = models[model]!;
    const heldParameters = parametersOf(closing) / closing.length;
    const all = Map.groupBy(
      group.flatMap(({ layers }) => [...layers.values()]),
      ({ facts }) => factsKey(facts),
    );
    return [...all.values()].flatMap((layer): LayerCost[] => {
      const { F, B, I, W } = forKinds((kind) => medianMs(layer.map(({ sums }) => sums[kind])));
      if (F === undefined || B === undefined) return [];
      return [{
        ...layer[0]!.facts,
        ...{ sizes, microBatch, device, recompute, atOnce, heldParameters },
        forwardMs: F,
        backwardMs: B,
        // The first layer has no gradient for its input, so its W is the whole backward.
        ...W !== undefined && { inputMs: I ?? 0, weightMs: W },
      }];
    });
  });
}

const keyOf = ({ model, atOnce, stages }: LoadTimes) => `${model} ${atOnce} ${stages}`;

/** Returns the median of the mean durations of several rounds; undefined without runs. */
function medianMs(sums: readonly TimedSum[]): number | undefined {
  const means = sums.filter(({ runs }) => runs > 0).map(({ runs, ms }) => ms / runs);
  return means.length > 0 ? median(means) : undefined;
}

/** Measurements of the costs once a step. */
/** Returns the costs once a step, for each load. */
export function loadCosts(rounds: readonly LoadTimes[]): LoadCost[] {
  return [...new Set(rounds.map(({ atOnce }) => atOnce))].map((atOnce) => {
    const all = rounds.filter((one) => one.atOnce === atOnce && one.stages === atOnce)
      .flatMap(({ closing }) => closing)
      .filter(({ parameters }) => parameters > 0);
    const cost = (name: keyof ProbeClosing): LinearCost => {
      const perMillion = all.map((one) => one[name] / (one.parameters / 1e6));
      return { ms: 0, msPerMillion: all.length === 0 ? 0 : median(perMillion) };
    };
    return {
      atOnce,
      ...{ optimizer: cost("optimizer"), vote: cost("vote"), norm: cost("norm"), end: cost("end") },
    };
  });
}

/** Returns the spread of the forwards of the first stage, for each model and load. */
export function spreads(
  rounds: readonly LoadTimes[],
  models: MeasuredFacts["models"],
): Spread[] {
  const groups = Object.groupBy(rounds, keyOf);
  return Object.values(groups).map((group) => {
    const { model, atOnce } = group![0]!, { microBatch, recompute } = models[model]!;
    const sorted = group!.flatMap(({ actions }) => actions[0]!.F).sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))]!;
    const shares = group!.flatMap(({ cpuShare }) => cpuShare ?? []);
    return {
      ...{ microBatch, recompute, atOnce },
      ...{ p10Ms: at(0.1), medianMs: median(sorted), p90Ms: at(0.9) },
      ...shares.length > 0 && { cpuShare: median(shares) },
    };
  });
}

/** Minimum share of the cores on a quiet machine. */
const CPU_SHARE_MIN = 0.9;

/** Returns a note if other programs computed during the measurement. */
export function loadNotes(spread: readonly Spread[]): string[] {
  const least = Math.min(...spread.map(({ cpuShare = 1 }) => cpuShare));
  if (least >= CPU_SHARE_MIN) return [];
  const percent = (100 * (1 - least)).toFixed(0);
  return [
    `other programs used up to ${percent} % of the cores during the measurement, so costs are too high: end them, and measure again`,
  ];
}

/** Returns the durations of each kind of action, for each stage and round. */
export const actionTimes = (rounds: readonly LoadTimes[]): (readonly number[])[] =>
  rounds.flatMap(({ actions }) => actions.flatMap((kinds) => Object.values(kinds)));

/** Options of a measurement. */
export interface MeterOptions {
  /** Device. */
  readonly device: RunDevices[0];
  /** Measured models, with micro-batch size and recomputation policy. */
  readonly models: readonly {
    readonly model: Model;
    readonly microBatch: number;
    readonly recompute: Recompute;
    /** Default fp32. */
    readonly precision?: Precision;
  }[];
  /** Sizes of the model, for readers of the profile. */
  readonly sizes: Readonly<Record<string, number>>;
  /** Numbers of workers that compute at the same time; each is measured. */
  readonly loads: readonly number[];
  /** Place of workers. */
  readonly isolate: PlaceName;
  /** Measured transports. */
  readonly links: readonly PlaceName[];
}

/** A measurement in rounds. */
export type Meter = Awaited<ReturnType<typeof openMeter>>;

/** Returns empty measurements. */
const noRounds = (links: readonly PlaceName[]) => ({
  layers: [] as LoadTimes[],
  links: new Map(links.map((name): [PlaceName, Trips[]] => [name, []])),
  tiny: [] as TinySteps[],
  reduces: [] as number[],
});

/**
 * Opens a meter; its first round is a warmup.
 *
 * @throws {RangeError} when the measurement needs more memory than this machine has.
 */
export async function openMeter(options: MeterOptions) {
  const { device, isolate, models: measured } = options;
  const models = measured.map(({ model, microBatch, recompute, precision }) => (
    { microBatch, recompute, program: compileModel(model, recompute, { precision }) }
  ));
  const programs = models.map(({ program }) => program), loads = loadsOf(options.loads, programs);
  assertMachineHolds("Cannot measure", neededBytes(programs, loads));
  await using stack = new AsyncDisposableStack();
  const system = stack.use(createSystem());
  const probes = new Probes(system, { device, models, loads, isolate });
  const names = [...new Set([...options.links, isolate])];
  const links = names.map((name) => [name, openLink(system, name)] as const);
  const place: PlaceOptions = {
    device: device.name,
    runtime: isolate === "local" ? "local" : "workers",
    ...isolate !== "local" && { isolation: isolate },
  };
  const tiny = stack.use(await openTinyRun(place));
  const copies = mostOf(loads) === 1
    ? undefined
    : stack.use(await openCopiesRun(place, measured[0]!.model));
  const runs: (CalibratedLoad & { readonly run: MeasuredRun })[] = [];
  for (const [index, { model, recompute, precision = "fp32" }] of measured.entries()) {
    const most = programs[index]!.layers.length;
    for (const { atOnce, stages } of loads.filter((load) => load.stages <= most)) {
      // Enough micro-batches keep all workers busy.
      const size = { workers: stages, microBatches: 3 * stages, replicas: atOnce / stages };
      const how = { recompute, precision, schedule: "1f1b", trace: true };
      const run = await openMeasuredRun({ ...place, model, ...how, ...size });
      runs.push({ model: index, atOnce, stages, run: stack.use(run), steps: [] });
    }
  }
  let rounds = noRounds(names);
  /** Takes a step of each run. */
  const step = async () => {
    for (const { run, steps } of runs) steps.push(await warmTraces(run));
  };
  /** Measures everything once; each model and load for `forMs` milliseconds. */
  const round = async (forMs: number) => {
    rounds.layers.push(...await probes.measure(forMs));
    for (const [name, play] of links) rounds.links.get(name)!.push(await play());
    await tiny.step();
    rounds.tiny.push(await takeTinySteps(tiny));
    if (copies) rounds.reduces.push(reduceMs(await warmTraces(copies, REDUCE_WARMUP)));
    await step();
  };
  const opened = stack.move();
  return {
    round,
    step,
    /** Discards the measurements. */
    reset() {
      rounds = noRounds(names);
      for (const { steps } of runs) steps.splice(0);
    },
    /** Returns the profile of all rounds. */
    profile: (): Profile => ({
      ...profileOf(rounds, runs, options, models),
      machine: thisMachine(),
      reduce: copies ? sumCost(programs[0]!, rounds.reduces) : { ms: 0, msPerMillion: 0 },
    }),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

/** Steps before an all-reduce that counts: V8 drops compiled code of isolates that were idle. */
const REDUCE_WARMUP = 4;

/** Returns the traces of a step after others: the first is slower, since its isolates were idle. */
async function warmTraces(run: MeasuredRun, warmup = 1): Promise<CalibratedLoad["steps"][number]> {
  for (let taken = 0; taken < warmup; taken++) await run.step();
  return (await run.step()).traces;
}

/** Returns the bytes of the models: the probes and the run of each load have a copy each. */
function neededBytes(programs: readonly ModelProgram[], loads: readonly Load[]): number {
  const slots = mostOf(loads);
  const options = { optimizer: ADAMW_DEFAULTS, backward: "split", slots } as const;
  const isolates = 2 * slots + loads.reduce((sum, { atOnce }) => sum + atOnce, 0);
  const copies = loads.reduce((sum, { atOnce, stages }) => sum + atOnce / stages, 0);
  return ISOLATE_BYTES * isolates +
    2 * copies * totalMemory(programs.map((program) => planMemory(program, options)));
}

function profileOf(
  { layers, links, tiny }: ReturnType<typeof noRounds>,
  runs: readonly CalibratedLoad[],
  { device, isolate, sizes }: MeterOptions,
  models: readonly ProbedModel[],
): Omit<Profile, "machine" | "reduce"> {
  const costs = Object.fromEntries([...links].map(([name, trips]) => [name, linkOf(trips)]));
  const { dispatchMs, stepMs } = overheadsOf(tiny, costs[isolate]!.latencyMs);
  const workers = Math.max(...runs.map(({ atOnce }) => atOnce));
  const pauses = runs.filter(({ atOnce, stages }) => atOnce === workers && stages === workers)
    .flatMap(({ steps }) => steps.flatMap((traces) => pausesOf(readStep(traces).workers)));
  const facts = { device: device.name, sizes, models };
  const costsOf = (model: number) => layerCosts(layers.filter((one) => one.model === model), facts);
  const { loads, layers: calibrated } = calibrate({
    layers: models.map((_, model) => costsOf(model)),
    loads: loadCosts(layers),
    programs: models.map(({ program }) => program),
  }, runs);
  const most = Math.max(...loads.map(({ atOnce }) => atOnce));
  const spread = spreads(layers, models);
  const { atOnce: _, optimizer, ...closing } = loads.find(({ atOnce }) => atOnce === most)!;
  return {
    format: PROFILE_FORMAT,
    version: PROFILE_VERSION,
    source: "measured",
    layers: calibrated,
    variation: variationOf(actionTimes(layers)),
    spread,
    optimizer,
    links: costs,
    // A worker of a pipeline also handles messages between its actions.
    dispatchMs: pauses.length > 0 ? Math.max(dispatchMs, median(pauses)) : dispatchMs,
    closing: { ...closing, stepMs },
    loads,
    notes: loadNotes(spread),
  };
}
