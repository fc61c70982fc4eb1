/**
 * Costs of the stages of a compiled run, from a profile.
 *
 * @module
 */

import type { StageOptions, StageProgram } from "../../kernels/mod.ts";
import { formatLayout, refusal, skipEdges } from "../../kernels/internal.ts";
import { segmentsOf } from "../../kernels/stage/activations.ts";
import {
  type LayerTimes,
  partitionForSchedule,
  type Schedule,
  type StageModel,
} from "../../schedules/mod.ts";
import { parts } from "../../schedules/internal.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";

import {
  factsKey,
  type LayerCost,
  type LayerFacts,
  linearMs,
  type LinkCost,
  type LoadCost,
  meanOf,
  parametersOf,
  type Profile,
  slicedFacts,
  type TIMES,
} from "./profile.ts";
import type { CompiledRun } from "../run/memory.ts";

/** Returns the milliseconds to send bytes in a number of messages; 0 without a link. */
const sendMs = (link: LinkCost | undefined, messages: number, bytes: number): number =>
  link ? messages * link.latencyMs + bytes / (link.bytesPerMs ?? Infinity) : 0;

/** Milliseconds of a layer for one micro-batch. */
export type FoundCost = Readonly<Record<typeof TIMES[number], number>>;

/** Maps the values of an object's fields. */
export const mapFields = <K extends string, V, R>(
  all: Readonly<Record<K, V>>,
  change: (value: V, name: K) => R,
): Record<K, R> =>
  Object.fromEntries(
    Object.entries<V>(all).map(([name, value]) => [name, change(value, name as K)]),
  ) as Record<K, R>;

/** Returns the mean of each field of several objects. */
export const meansOfFields = <K extends string>(
  all: readonly Readonly<Record<K, number>>[],
): Record<K, number> => mapFields(all[0]!, (_, name) => meanOf(all.map((one) => one[name])));

/** Opens the costs of a device. */
export function openCosts(profile: Profile, device: string) {
  const { optimizer, closing: { vote, norm, end }, loads = [] } = profile;
  const all = loads.length > 0 ? loads : [{ atOnce: 1, optimizer, vote, norm, end }];
  const sorted = all.toSorted((a, b) => a.atOnce - b.atOnce);
  return {
    ...openLayerCosts(profile.layers, device),
    /** Returns the costs of the end of a step while `atOnce` workers do it. */
    once: (atOnce: number): LoadCost =>
      sorted.find((one) => one.atOnce >= atOnce) ?? sorted.at(-1)!,
  };
}

/** Cost of a layer in a worker that holds a number of trained elements. */
interface HeldCost {
  readonly held: number;
  readonly cost: FoundCost;
}

/** Opens the costs of layers on a device. */
export function openLayerCosts(layers: readonly LayerCost[], device: string) {
  const known = new Map<string, HeldCost[][]>(), scaled = new Set<string>();
  const ofDevice = layers.filter((one) => one.device === device);
  const loads = [...new Set(ofDevice.map(({ atOnce }) => atOnce))].sort((a, b) => a - b);
  const costsOf = (facts: LayerFacts): HeldCost[][] => {
    const candidates = ofDevice.filter(({ kind, precision }) =>
      kind === facts.kind && precision === facts.precision
    );
    if (candidates.length === 0) {
      const all = new Set(layers.map((one) => `${one.kind} (${one.device}, ${one.precision})`));
      const must =
        `the profile must have the cost of ${facts.kind} (${device}, ${facts.precision})`;
      throw refusal("predict", must, [...all].join(", ") || "none", Error);
    }
    return loads.map((atOnce) => {
      const measured = candidates.filter((one) => one.atOnce === atOnce);
      return nearest(facts, measured.length > 0 ? measured : candidates)
        .map((one) => ({ held: one.heldParameters ?? 0, cost: scaledTo(facts, one, scaled) }));
    });
  };
  const find = (facts: LayerFacts) =>
    known.getOrInsertComputed(`${facts.precision} ${factsKey(facts)}`, () => costsOf(facts));
  return {
    /** Descriptions of scaled costs, for the notes of a prediction. */
    scaled: scaled as ReadonlySet<string>,
    /** Returns a load within the measured ones: beyond them, costs are those of the nearest. */
    measuredLoad: (atOnce: number): number =>
      Math.min(Math.max(atOnce, loads[0] ?? 1), loads.at(-1) ?? 1),
    /**
     * Returns the cost of a layer, interpolated between the measured loads and stages.
     *
     * @param held number of trained elements of its worker.
     * @throws {Error} when the profile has no cost of its kind.
     */
    layer(facts: LayerFacts, atOnce: number, held: number): FoundCost {
      const found = find(facts), costs = found.map((one) => heldCost(one, found.at(-1)!, held));
      return between(loads, costs, atOnce);
    },
    /** Returns the measured costs of a layer; all interpolated ones are between these. */
    measured(facts: LayerFacts): FoundCost[] {
      const found = find(facts), last = found.at(-1)!;
      return found.flatMap((one) => last.map(({ held }) => heldCost(one, last, held)));
    },
  };
}

/**
 * Returns the cost of a layer in a worker that holds a number of trained elements. Only under the
 * highest load were several numbers measured; their ratios hold for the other loads.
 */
function heldCost(costs: readonly HeldCost[], last: readonly HeldCost[], held: number): FoundCost {
  const at = (held: number) =>
    between(last.map((one) => one.held), last.map((one) => one.cost), held);
  if (costs === last) return at(held);
  const [own] = costs, to = at(held), from = at(own!.held);
  return mapFields(own!.cost, (ms, name) => from[name] > 0 ? ms * to[name] / from[name] : ms);
}

/** Returns a cost, with a half of the backward for parts that were not measured. */
export function foundOf(cost: LayerCost): FoundCost {
  const { forwardMs, backwardMs, recomputeMs = forwardMs } = cost;
  const { weightMs = backwardMs / 2, inputMs = backwardMs - weightMs } = cost;
  return { forwardMs, backwardMs, inputMs, weightMs, recomputeMs };
}

/** Returns the distance between the work of two layers: 0 if it is equal. */
function distance(a: LayerFacts, b: LayerFacts): number {
  const apart = (x: number, y: number) => Math.abs(Math.log(Math.max(x, 1) / Math.max(y, 1)));
  return apart(a.forwardFlops, b.forwardFlops) + apart(a.backwardFlops, b.backwardFlops) +
    apart(a.parameters, b.parameters);
}

/** Returns the costs of the layer with the most similar work, by what its worker held. */
function nearest(facts: LayerFacts, costs: readonly LayerCost[]): LayerCost[] {
  const best = costs.reduce((best, one) =>
    distance(facts, one) < distance(facts, best) ? one : best
  );
  return costs.filter((one) =>
    one.microBatch === best.microBatch && one.recompute === best.recompute &&
    distance(best, one) === 0
  ).sort((a, b) => (a.heldParameters ?? 0) - (b.heldParameters ?? 0));
}

/** Scales a cost to another size by floating-point operations, and notes it in `scaled`. */
function scaledTo(facts: LayerFacts, cost: LayerCost, scaled: Set<string>): FoundCost {
  const ratio = (to: number, from: number) => to > 0 && from > 0 ? to / from : 1;
  const forward = ratio(facts.forwardFlops, cost.forwardFlops);
  const backward = ratio(facts.backwardFlops, cost.backwardFlops);
  if (distance(facts, cost) > 0) {
    const { kind, microBatch, recompute } = cost;
    const [one, other] = [forward, backward].map((times) => `${times.toPrecision(3)} times the`);
    const of = `of ${microBatch} samples, recompute ${recompute}`;
    scaled.add(`${kind}: ${one} forward and ${other} backward ${of}`);
  }
  return mapFields(
    foundOf(cost),
    (ms, name) => (name === "forwardMs" || name === "recomputeMs" ? forward : backward) * ms,
  );
}

/** Interpolates costs between two of `points`, in ascending order. */
function between(points: readonly number[], costs: readonly FoundCost[], at: number): FoundCost {
  const above = points.findIndex((one) => one >= at);
  if (above <= 0) return costs.at(above)!;
  const low = points[above - 1]!, share = (at - low) / (points[above]! - low);
  const [a, b] = [costs[above - 1]!, costs[above]!];
  return mapFields(a, (ms, name) => ms + share * (b[name] - ms));
}

/** The model to cut, and its run. */
interface CutRun {
  /** Schedule of the run. */
  readonly schedule: Schedule;
  /** Compiled model, with any cut. */
  readonly compiled: Pick<CompiledRun, "model" | "stage" | "halves">;
  /** Name of the device in the profile. */
  readonly device: string;
  /** Link of messages. Default: messages take no time. */
  readonly link?: LinkCost | undefined;
  /** Data-parallel replicas. Default 1. */
  readonly replicas?: number | undefined;
  /** Limit of the search, as for {@linkcode partitionForSchedule}. */
  readonly work?: number | undefined;
}

/**
 * Returns the partition with the shortest step, and its `--layout`, by the measured costs of layers
 * while all workers compute.
 *
 * @throws {Error} when the profile has no cost of a layer's kind.
 * @throws {RangeError} when the model has fewer layers than the schedule has stages.
 */
export function recommendLayout(
  profile: Profile,
  { schedule, compiled, device, link, replicas = 1, work }: CutRun,
) {
  const { model, stage, halves } = compiled, costs = openCosts(profile, device);
  const facts = slicedFacts(model, stage), slices = facts.length, runs = halves * slices;
  const { workers, stages, placement } = schedule, copies = placement.flat().length / stages;
  const held = copies * parametersOf(facts[0]!) / workers;
  const layers = facts.map((slice) =>
    slice.map((one) => costs.layer(one, replicas * workers, held))
  );
  const msOf = (name: keyof FoundCost) =>
    model.layers.map((_, i) => halves * layers.reduce((ms, slice) => ms + slice[i]![name], 0));
  const input = msOf("inputMs"), weight = msOf("weightMs");
  const times: LayerTimes = {
    forward: msOf("forwardMs"),
    // A schedule has either split or whole backwards.
    ...isSplit(schedule)
      ? { backward: input.map((ms, i) => ms + weight[i]!), input }
      : { backward: msOf("backwardMs") },
    recompute: msOf("recomputeMs"),
    send: facts[0]!.map(({ outputBytes }) => sendMs(link, slices, runs * outputBytes)),
    skips: skipEdges(model, [...model.layers.keys()]).map(({ key: _, bytes, ...edge }) => {
      return { ...edge, send: sendMs(link, slices, runs * bytes) };
    }),
  };
  const partition = partitionForSchedule(schedule, times, undefined, work);
  return { ...partition, layout: formatLayout(model.layers, partition.starts) };
}

/** Returns whether backwards are split into two parts. */
const isSplit = ({ lists = [] }: Schedule): boolean =>
  lists.some((list) => [...list].some(({ kind }) => kind === "I"));

/** The properties of a stage that affect its costs. */
type CostedStage = ReturnType<typeof costedStages>[number];

/** Returns the stages of a run. */
export const costedStages = (compiled: CompiledRun, schedule: Schedule) =>
  compiled.programs.map((program, index) => ({
    program,
    /** Runs of its kernels for each micro-batch: 2 for halves. */
    runs: compiled.halves,
    /** Options of the stage. */
    options: optionsOf(compiled, index),
    /** Facts of its layers, for each slice of a sequence. */
    slices: slicedFacts(program, compiled.stage),
    // Only needed with an interval; an R always recomputes.
    ...compiled.stage.recomputeInterval === undefined || compiled.recomputed.has(index)
      ? { freshShare: 0, freshWeightShare: 0 }
      : freshShares(schedule, index),
  }));

/**
 * Returns the share of a stage's backwards that directly follow the forward of their micro-batch, and
 * of its W that directly follow their I. In message-driven schedules only the last stage has such
 * backwards, since they start with the loss.
 */
function freshShares({ lists, stages, pipelineOf }: Schedule, stage: number) {
  if (!lists) return { freshShare: stage === stages - 1 ? 1 : 0, freshWeightShare: 0 };
  const fresh = { B: 0, W: 0 }, all = { B: 0, W: 0 };
  for (const list of lists) {
    const last = new Map<number, string>();
    for (const part of [...list].flatMap(parts).filter((one) => one.stage === stage)) {
      const { kind, microBatch } = part, pipeline = pipelineOf[microBatch]!;
      const what = `${microBatch} ${part.part?.index}`;
      const before = kind === "W" ? `I${what}` : `F${what}`;
      if (kind !== "F" && kind !== "R") {
        const key = kind === "W" ? "W" : "B";
        all[key]++;
        if (last.get(pipeline) === before) fresh[key]++;
      }
      last.set(pipeline, `${kind}${what}`);
    }
  }
  const share = (key: "B" | "W") => all[key] === 0 ? 0 : fresh[key] / all[key];
  return { freshShare: share("B"), freshWeightShare: share("W") };
}

/**
 * Returns the costs of a stage.
 *
 * @param slices costs of its layers for each slice, or one cost for all layers.
 * @param once costs once a step.
 */
export function stageModel(
  { program, slices: facts, options, runs, freshShare, freshWeightShare }: CostedStage,
  slices: readonly (readonly FoundCost[])[],
  once: LoadCost,
): StageModel {
  const sum = (name: keyof FoundCost) =>
    runs * slices.flat().reduce((ms, layer) => ms + layer[name], 0);
  const parameters = parametersOf(facts[0]!);
  const { recomputeInterval } = options;
  const againMs = (share: number) =>
    runs * slices.reduce((ms, layers) => ms + recomputeMs(program, layers, options, share), 0);
  // I ends with the first segment and W starts with the last one; a single segment is still fresh.
  const isOne = segmentsOf(program.layers, recomputeInterval).length === 1;
  const backwardMs = sum("backwardMs"), elementBytes = options.precision === "fp16" ? 2 : 4;
  return {
    forwardMs: sum("forwardMs"),
    backwardMs,
    inputMs: sum("inputMs"),
    // With an interval, W repeats B.
    weightMs: recomputeInterval
      ? backwardMs + againMs(isOne ? freshWeightShare : 0)
      : sum("weightMs"),
    recomputeMs: againMs(freshShare),
    outputBytes: runs * facts.reduce((bytes, one) => bytes + one.at(-1)!.outputBytes, 0),
    gradientBytes: parameters * elementBytes,
    checkMs: linearMs(once.vote, parameters),
    optimizerMs: optimizerMs(once, parameters),
  };
}

/** Returns the milliseconds of norms, optimizer and zeroing, which follow each other on a worker. */
export const optimizerMs = ({ optimizer, norm, end }: LoadCost, parameters: number): number =>
  linearMs(optimizer, parameters) + linearMs(norm, parameters) + linearMs(end, parameters);

/** Returns the milliseconds of recomputation with an interval; a fresh last segment is free. */
function recomputeMs(
  { programs, layers: named }: StageProgram,
  layers: readonly FoundCost[],
  { recomputeInterval }: StageOptions,
  freshShare: number,
): number {
  // Costs from a trace include the recomputation.
  if (recomputeInterval === undefined || layers.length < named.length) return 0;
  const segments = segmentsOf(named, recomputeInterval);
  return segments.reduce((total, { from, to }, i) => {
    const isKept = programs[named[to - 1]!.program]!.saved.length === 0;
    const ms = layers.slice(from, isKept ? to - 1 : to)
      .reduce((sum, one) => sum + one.recomputeMs, 0);
    return total + (i === segments.length - 1 ? (1 - freshShare) * ms : ms);
  }, 0);
}
