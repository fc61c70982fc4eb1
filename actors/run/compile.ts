/**
 * Compiles the model of a run, cuts it into stages, plans their storage and memory, and describes the
 * result.
 *
 * @module
 */

import type { Plan, StagePlan } from "../options/train_events.ts";
import type { ComputedOn } from "./devices.ts";
import {
  type Batch,
  compileModel,
  type DeviceName,
  type Model,
  type ModelProgram,
  type OptimizerOptions,
  type StageOptions,
  type StageProgram,
} from "../../kernels/mod.ts";
import {
  activationBytes,
  assertInput,
  checkLora,
  checkStageOptions,
  completeOptimizer,
  cutIntoStages,
  elementCount,
  ELEMENTS_MAX,
  formatLayout,
  groupOf,
  haveLengths,
  isLora,
  jobParameter,
  readLayout,
  refusal,
  slicesOf,
  startsOf,
  withLora,
} from "../../kernels/internal.ts";
import { type LayerTimes, partitionForSchedule, type Schedule } from "../../schedules/mod.ts";
import { halvesOf, recomputedStages, splitsBackward } from "../../schedules/internal.ts";
import type { RunOptions, TrainOptions } from "../options/train_options.ts";
import { buddiesOf, copiesOf, pipelineCount } from "../pipeline/layout.ts";
import { optionsOf } from "../pipeline/stage_copies.ts";
import { mostTied, trainedTies } from "./engine.ts";
import type { RunJob } from "./events.ts";
import { type CompiledRun, planWorkers } from "./memory.ts";

/** Options of the compilation: the model, and options of a run. */
export type CompileOptions =
  & Pick<RunOptions, "model">
  & Partial<Omit<TrainOptions, "model" | "device" | "transport">>;

/**
 * Compiles a model with the adapters of jobs, once for each setting: the parameters of an adapter have
 * the name of its job as prefix.
 *
 * @throws as {@linkcode compileRun}.
 */
export function compileJobs(
  options: CompileOptions,
  jobs: readonly RunJob[],
  schedule: Schedule,
): CompiledRun {
  const settings = jobs.map(({ lora }) => JSON.stringify(lora)), each = [...new Set(settings)];
  const runs = each.map((one) =>
    compileRun({ ...options, lora: jobs[settings.indexOf(one)]!.lora }, schedule)
  );
  const variants = runs.map(({ model }) => model), [first] = runs as [CompiledRun];
  const variantOf = settings.map((one) => each.indexOf(one));
  const parameters = jobs.flatMap(({ name }, i) =>
    variants[variantOf[i]!]!.parameters.filter((one) => isLora(one.name))
      .map((one) => ({ ...one, name: jobParameter(name, one.name) }))
  );
  const fixed = parameters.find(({ isFrozen }) => isFrozen)?.name;
  const must = "no group may freeze a part of an adapter, as jobs share all frozen weights";
  assertInput(fixed === undefined, "train jobs", must, fixed);
  const model: ModelProgram = {
    ...first.model,
    parameters: [...first.model.parameters.filter(({ name }) => !isLora(name)), ...parameters],
    jobs: { names: jobs.map(({ name }) => name), variantOf, variants },
  };
  return { ...first, model, programs: cutIntoStages(model, schedule.stages) };
}

/**
 * Compiles a model for a schedule.
 *
 * @param device Device whose memory is planned; by default one with free views.
 * @param compile Replacement of {@linkcode compileModel}, such as one with a cache.
 * @throws {RangeError} or {@linkcode TypeError} when the model has too few layers or its layers do not
 * match the layout, a bucket is larger than a stage, or micro-batches cannot be cut into halves or their
 * sequences into slices.
 * @throws {SyntaxError} when the layout is invalid.
 */
export function compileRun(
  options: CompileOptions,
  schedule: Schedule,
  device?: DeviceName,
  compile: typeof compileModel = compileModel,
): CompiledRun {
  const { recompute = "none", precision = "fp32", bucketSize, recomputeInterval } = options;
  const optimizer = completeOptimizer(options.optimizer), frozen = frozenBy(optimizer, options);
  const { lora } = options, given = lora ? withLora(options.model, lora) : options.model;
  const cannot = `train with the schedule ${schedule.name}`,
    isCut = options.lengths && schedule.slices;
  assertInput(!isCut, cannot, "it cuts sequences into slices, so lengths must be false", true);
  const halves = halvesOf(schedule);
  const source = halves === 2 ? halved(given, schedule) : given;
  const compiled = compile(source, recompute, {
    precision,
    slices: schedule.slices,
    lengths: options.lengths,
    elementsMax: ELEMENTS_MAX,
    ...frozen && { frozen },
  });
  if (lora) checkLora(compiled.parameters, given.ties ?? [], lora);
  checkGroups(optimizer, compiled);
  const model = laidOut(compiled, schedule, options.layout);
  const programs = cutIntoStages(model, schedule.stages);
  const recomputed = recomputedStages(schedule);
  const copies = pipelineCount(schedule) * (options.replicas ?? 1);
  const stage: StageOptions = {
    optimizer,
    backward: splitsBackward(schedule) ? "split" : "whole",
    precision,
    offload: options.offload ?? false,
    addends: copies * mostTied(trainedTies(model)),
    ...bucketSize && { bucketSize },
    ...options.evaluation?.ema && { average: true },
    ...recomputeInterval && { recomputeInterval },
    // Each worker has its own number.
    ...options.lengths && schedule.limitBy && { longestSlots: 1 },
  };
  for (const program of programs) checkStageOptions(program, stage);
  const mirrored = options.buddy
    ? buddiesOf(copiesOf(schedule, options.replicas ?? 1), schedule.workers)
    : [];
  return planRun({ model, programs, stage, halves, recomputed, mirrored }, schedule, device);
}

/** Returns a function that says whether a parameter is frozen, alone or with its group. */
function frozenBy(
  optimizer: OptimizerOptions,
  { frozen, model: { ties = [] } }: Pick<CompileOptions, "frozen" | "model">,
): CompileOptions["frozen"] {
  const { groups } = optimizer;
  if (!groups) return frozen;
  for (const tie of ties) {
    const [one, other] = tie.map((name) => groupOf(optimizer, name));
    assertInput(one === other, "train", "groups must not part tied parameters", tie.join(" and "));
  }
  return (name) =>
    (frozen?.(name) ?? false) || (groups[groupOf(optimizer, name) ?? -1]?.frozen ?? false);
}

/** Throws unless each group has a parameter: a group of a misspelt name would change nothing. */
function checkGroups(optimizer: OptimizerOptions, { parameters }: ModelProgram): void {
  for (const group of optimizer.groups ?? []) {
    const own = { ...optimizer, groups: [group] };
    const isUsed = parameters.some(({ name }) => groupOf(own, name) === 0);
    const must = `each group must match a parameter, such as ${parameters[0]?.name}`;
    assertInput(isUsed, "train", must, group.match);
  }
}

/** Returns a model with the stages of a layout. */
function laidOut(model: ModelProgram, schedule: Schedule, layout = "auto"): ModelProgram {
  if (layout === "auto") return model;
  const starts = layout === "schedule"
    ? partitionForSchedule(schedule, estimatedTimes(model)).starts
    : readLayout(layout, model.layers, schedule.stages);
  return { ...model, starts };
}

/** Returns the time of each layer, estimated without a machine. */
function estimatedTimes({ programs, layers }: ModelProgram): LayerTimes {
  const costOf = (kind: "forward" | "backward") =>
    layers.map(({ program, slices = [program] }) =>
      slices.reduce((sum, one) => sum + programs[one]!.cost[kind], 0)
    );
  return { forward: costOf("forward"), backward: costOf("backward") };
}

/**
 * Returns a function that finds the activations of a micro-batch as a part of those of the longest, in the
 * stage where that is most; undefined if limits count micro-batches.
 */
export function sizeFinder(compiled: CompiledRun): ((batch: Batch) => number) | undefined {
  const { model, programs, stage: { longestSlots }, halves } = compiled;
  if (longestSlots === undefined || !model.lengths) return undefined;
  const held = programs.map((program, s) =>
    activationBytes(program, optionsOf(compiled, s)).perLength!
  );
  const sizes = model.lengths.map((_, i) =>
    Math.max(...held.map((bytes) => bytes[i]! / bytes[0]!))
  );
  const fields = slicesOf(model).map((layers) => layers.flatMap(({ program }) => program.fields));
  return (batch) => sizes[fields.findIndex((own) => haveLengths(own, batch, halves))]!;
}

/** Returns a compiled run with its memory on a device, which is planned when `memory` is first read. */
export function planRun(
  compiled: Omit<CompiledRun, "memory">,
  schedule: Schedule,
  device: DeviceName | undefined,
): CompiledRun {
  let memory: CompiledRun["memory"] | undefined;
  return {
    ...compiled,
    get memory() {
      return memory ??= planWorkers(compiled, schedule, device);
    },
  };
}

/** The model for half a micro-batch. */
function halved(model: Model, schedule: Schedule): Model {
  const { name, samples, withSamples } = model, cannot = `train with the schedule ${schedule.name}`;
  if (samples === undefined || withSamples === undefined) {
    const must = "it halves micro-batches, so the model must have withSamples";
    throw refusal(cannot, must, `${name} without it`, TypeError);
  }
  const must = "it halves micro-batches, so their size must be even";
  assertInput(samples % 2 === 0, cannot, must, samples);
  return withSamples(samples / 2);
}

/** Describes a run. */
export function describePlan(
  compiled: CompiledRun,
  schedule: Schedule,
  { runtime, on: { device, adapter, matrix }, share, replicas, run }:
    & Pick<Plan, "runtime" | "share" | "replicas" | "run">
    & { readonly on: ComputedOn },
): Plan {
  const { model, memory } = compiled;
  const total = model.costs.reduce((sum, cost) => sum + cost, 0);
  const costOf = ({ programs, layers }: StageProgram) =>
    layers.flatMap(({ program, slices = [program] }) => slices).reduce((sum, program) => {
      const { forward, backward } = programs[program]!.cost;
      return sum + forward + backward;
    }, 0);
  const stages = compiled.programs.map((program, stage): StagePlan => ({
    stage,
    workers: schedule.placement.flatMap((held, worker) =>
      held.some((one) => one.stage === stage) ? [worker] : []
    ),
    layers: namesOf(program.layers, model.layers),
    parameters: elementsOf(parametersOf(program)),
    costShare: costOf(program) / total,
    activationBytes: bytesOfMicroBatch(activationBytes(program, optionsOf(compiled, stage))),
  }));
  return {
    model: model.name,
    parameters: stages.reduce((sum, { parameters }) => sum + parameters, 0),
    trained: elementsOf(
      compiled.programs.flatMap(parametersOf).filter(({ frozen }) => !frozen),
    ),
    schedule: schedule.name,
    runtime,
    device,
    ...adapter !== undefined && { adapter },
    ...matrix !== undefined && { matrix },
    share,
    replicas,
    microBatches: schedule.microBatches,
    memory,
    run,
    stages,
    layout: formatLayout(model.layers, startsOf(model, schedule.stages)),
  };
}

const parametersOf = ({ layers, programs }: StageProgram) =>
  layers.flatMap(({ program }) => programs[program]!.parameters);

const elementsOf = (parameters: ReturnType<typeof parametersOf>) =>
  parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);

const bytesOfMicroBatch = (bytes: ReturnType<typeof activationBytes>) =>
  bytes.perMicroBatch + bytes.perBackward;

/** Returns the names of a stage's layers; a complete block has the name of the block. */
function namesOf(held: StageProgram["layers"], all: StageProgram["layers"]): readonly string[] {
  const partsOf = (layers: StageProgram["layers"], of: string) =>
    layers.filter(({ block }) => block === of).length;
  return held.flatMap(({ name, block }, i) => {
    if (block === undefined || partsOf(held, block) < partsOf(all, block)) return [name];
    return held[i - 1]?.block === block ? [] : [block];
  });
}
