/** Predicts candidates by a profile, as {@linkcode predictRun} does, and bounds them before. */

import {
  compileModel,
  DEVICE_NAMES,
  formatLayout,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  partition,
} from "../../../kernels/mod.ts";
import type { Schedule, StageModel } from "../../../schedules/mod.ts";
import { type CompiledRun, compileRun } from "../../run/compile_run.ts";
import { limitedBytes } from "../../run/memory/memory_plan.ts";
import { recommendLayout } from "../partition.ts";
import { predictRun } from "../predict.ts";
import { type FoundCost, mapNumbers, openCosts } from "../profile/find_costs.ts";
import { type LayerFacts, slicedFacts } from "../profile/layer_facts.ts";
import type { Profile } from "../profile/profile.ts";
import { optimizerMs } from "../stage_costs.ts";
import type { Candidate } from "./candidate.ts";
import type { Forecast } from "./forecast.ts";

/** What all candidates have in common. */
export interface ForecastOptions {
  /** The model; candidates ask for other micro-batches of it. */
  readonly model: Model;
  /** The optimizer. */
  readonly optimizer: OptimizerOptions;
  /** What computes, as the profile names it. */
  readonly device: string;
  /** How messages travel, as the profile names it. */
  readonly transport: string;
  /** The most that the norm of all gradients may be; any unless given. */
  readonly clip?: number | undefined;
}

/** The least that a layer costs for a micro-batch, whatever computes at the same time. */
type LeastLayer = Omit<FoundCost, "recomputeMs"> & Pick<LayerFacts, "parameters">;

/** A compiled model with the least that each layer costs. */
interface LeastModel {
  readonly costs: readonly number[];
  readonly layers: readonly LeastLayer[];
  /** Where each stage begins, by their number. */
  readonly starts: Map<number, readonly number[]>;
}

/**
 * Opens what predicts candidates.
 *
 * @throws {RangeError} when asked, where the profile has no costs of a layer or a transport.
 */
export function openForecast(profile: Profile, options: ForecastOptions): Forecast {
  const { optimizer, device, transport, clip } = options, models = opened(options);
  const { compile, sampled } = models, leastModel = openLeast(profile, options, models);
  const costs = openCosts(profile, device), link = profile.links[transport];
  const network = link && { link };
  // A stated profile may be of devices that this package does not have.
  const name = DEVICE_NAMES.find((known) => known === device);
  const compiled = new WeakMap<Schedule, Map<string, CompiledRun>>();
  const compiledRun = (candidate: Candidate, schedule: Schedule): CompiledRun => {
    const ofSchedule = compiled.get(schedule) ?? new Map<string, CompiledRun>();
    compiled.set(schedule, ofSchedule);
    const { microBatch, recompute, precision, replicas, bucketSize, layout } = candidate;
    const asked = { recompute, precision, replicas, optimizer, bucketSize, layout };
    const key = `${bucketSize} ${layout}`;
    const run = ofSchedule.get(key) ??
      compileRun({ model: sampled(microBatch), ...asked }, schedule, name, compile);
    ofSchedule.set(key, run);
    return run;
  };
  const predicted = (candidate: Candidate, schedule: Schedule, draws?: number) => {
    const { replicas, coarsening, microBatch } = candidate;
    const how = { device, transport, replicas, coarsening, clip, microBatch, draws };
    return predictRun(profile, { schedule, compiled: compiledRun(candidate, schedule), ...how });
  };
  return {
    least(candidate, schedule) {
      const { microBatch, options: { scale }, replicas } = candidate;
      const halves = scale === "halving" ? 2 : 1;
      const model = leastModel({ ...candidate, microBatch: microBatch / halves });
      const starts = model.starts.get(schedule.stages) ?? partition(model.costs, schedule.stages);
      model.starts.set(schedule.stages, starts);
      const once = costs.once(replicas * schedule.workers);
      const stages = starts.map((start, stage): StageModel => {
        const { parameters, ...ms } = model.layers.slice(start, starts[stage + 1]).reduce(sumOf);
        return {
          ...mapNumbers(ms, (one) => halves * one),
          gradientBytes: (candidate.precision === "fp16" ? 2 : 4) * parameters,
          optimizerMs: optimizerMs(once, parameters),
          memory: { keptBytes: 0, weightBytes: bytesOfParameter(optimizer) * parameters },
        };
      });
      return { schedule, replicas, stages, network, closing: {} };
    },
    bytes: (candidate, schedule) =>
      compiledRun(candidate, schedule).memory.map((one) => limitedBytes(one, name ?? "webgpu")),
    step: (candidate, schedule) => predicted(candidate, schedule, 0),
    layout(candidate, schedule) {
      const run = compiledRun(candidate, schedule), { replicas } = candidate;
      // A trace has costs of whole stages, not of layers.
      if (profile.source === "trace" || !isCutSoon(run, schedule)) return undefined;
      const work = LAYOUT_WORK;
      const { layout } = recommendLayout(profile, {
        ...{ schedule, compiled: run, device, link, replicas, work },
      });
      return layout === layoutOf(run) ? undefined : layout;
    },
    ...(profile.variation ?? []).length > 0 && {
      varied(candidate: Candidate, schedule: Schedule) {
        const varied = predicted(candidate, schedule), { stepMs, simulated } = varied;
        const variedMs = stepMs - simulated.makespanMs - profile.closing.stepMs;
        return { ...varied, variedMs };
      },
    },
  };
}

/**
 * A layout is sought for stages, layers and forwards of a step up to these, with so much work: within
 * a second, most within a tenth of it.
 */
const LAYOUT_STAGES_MAX = 16, LAYOUT_LAYERS_MAX = 128, LAYOUT_FORWARDS_MAX = 1024;
const LAYOUT_WORK = 1e6;

/** Whether there is a choice of cuts that takes no long search. */
const isCutSoon = ({ model }: CompiledRun, { stages, microBatches, slices = 1 }: Schedule) =>
  stages > 1 && stages <= LAYOUT_STAGES_MAX && model.layers.length <= LAYOUT_LAYERS_MAX &&
  stages * microBatches * slices <= LAYOUT_FORWARDS_MAX;

/** How a model is cut now. */
function layoutOf({ model, programs }: CompiledRun): string {
  let start = 0;
  return formatLayout(
    model.layers,
    programs.map(({ layers }) => (start += layers.length) - layers.length),
  );
}

/** Models by their samples, compiled once for each way. */
function opened({ model }: ForecastOptions) {
  const programs = new Map<string, ModelProgram>();
  const compile: typeof compileModel = (source, recompute, how) => {
    if ((how?.slices ?? 1) > 1 && source.withSlices === undefined) {
      throw new RangeError(
        `Cannot plan with slices: the model must have sequences, received ${source.name}`,
      );
    }
    const key = `${source.samples} ${recompute} ${how?.precision} ${how?.slices ?? 1}`;
    const known = programs.get(key) ?? compileModel(source, recompute, how);
    programs.set(key, known);
    return known;
  };
  const sampled = (samples: number): Model => {
    const made = model.samples === samples ? model : model.withSamples?.(samples);
    if (made) return made;
    throw new RangeError(
      `Cannot plan with micro-batches of ${samples}: the model must have withSamples, received ${model.name} without it`,
    );
  };
  return { compile, sampled };
}

const NO_TIME = { forwardMs: 0, backwardMs: 0, inputMs: 0, weightMs: 0 };

/** Finds the least that each layer costs. */
function openLeast(
  profile: Profile,
  { device, optimizer }: ForecastOptions,
  { compile, sampled }: ReturnType<typeof opened>,
) {
  const costs = openCosts(profile, device), known = new Map<string, LeastModel>();
  const loads = [...new Set(profile.layers.map(({ atOnce }) => atOnce))];
  const ofLayer = (facts: LayerFacts): LeastLayer => {
    const { parameters } = facts;
    // Those of a trace are of whole stages.
    if (profile.source === "trace") return { ...NO_TIME, parameters };
    const found = loads.map((atOnce) => costs.layer(facts, atOnce));
    return {
      ...mapNumbers(NO_TIME, (_, name) => Math.min(...found.map((one) => one[name]))),
      parameters,
    };
  };
  return ({ microBatch, recompute, precision, options: { slices } }: Candidate): LeastModel => {
    const key = `${microBatch} ${recompute} ${precision} ${slices}`, before = known.get(key);
    if (before) return before;
    const program = compile(sampled(microBatch), recompute, { precision, slices });
    const layers = slicedFacts(program, { optimizer }).map((slice) => slice.map(ofLayer))
      .reduce((all, slice) =>
        all.map((one, i) => ({ ...sumOf(one, slice[i]!), parameters: one.parameters }))
      );
    const made = { costs: program.costs, layers, starts: new Map() };
    known.set(key, made);
    return made;
  };
}

const sumOf = (a: LeastLayer, b: LeastLayer): LeastLayer =>
  mapNumbers(a, (value, name) => value + b[name]);

/**
 * Bytes that each trained number takes at least: itself and its gradient, with fp16 and a copy of the
 * weight in fp32, and what the optimizer keeps.
 */
const bytesOfParameter = ({ kind }: OptimizerOptions): number => 8 + (kind === "adamw" ? 8 : 4);
