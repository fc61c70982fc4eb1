/**
 * The initial weights and moments of a run, or their sources.
 *
 * @module
 */

import type { ModelParameter, ModelProgram, OptimizerOptions, StateOf } from "../../kernels/mod.ts";
import {
  assertInput,
  AVERAGE,
  completeOptimizer,
  elementCount,
  isLora,
  jobParameter,
  momentsOf,
  refusal,
  sameShape,
} from "../../kernels/internal.ts";
import { locateAdapter } from "../checkpoints/peft.ts";
import {
  areSquares,
  bytesOfSource,
  parameterOf,
  readState,
  readTensor,
  type TensorSource,
} from "../checkpoints/tensors.ts";
import { locateWeights, type NamedShape, readWeights } from "../checkpoints/weights.ts";
import { checkFinite } from "../gradients/commit.ts";
import { check } from "../options/option.ts";
import { ADAPTER_OPTIONS } from "../options/train_fields.ts";
import type { RunOptions } from "../options/train_options.ts";
import type { CheckedOptions } from "../options/train_table.ts";
import { isDataState } from "./data.ts";
import type { Progress, RunJob } from "./events.ts";

type Resume = NonNullable<RunOptions["resume"]>;

/**
 * Refuses a state that is not exactly the model's, before the first step.
 *
 * @throws {RangeError} with the tensor that is missing, unexpected, of another shape, or not finite.
 */
function checkResume(
  { parameters }: Pick<ModelProgram, "parameters">,
  optimizer: OptimizerOptions,
  resume: Resume,
): void {
  const { step, state, shapes } = resume;
  const isStep = Number.isSafeInteger(step) && step >= 0;
  assertInput(isStep, "resume", "step must be a whole number from 0", step);
  const moments = parameters.filter(({ isFrozen }) => !isFrozen).flatMap(({ name, shape }) =>
    momentsOf(optimizer, shape).map((moment) => ({ ...moment, name: `${name}.${moment.name}` }))
  );
  checkTensors("weights", parameters, state.weights, shapes?.weights);
  checkTensors(`moments of ${optimizer.kind}`, moments, state.moments, shapes?.moments);
  checkValues(state);
  checkProgress(resume);
}

/** Checks the values in memory; those in files were checked when they were located. */
function checkValues({ weights, moments }: StateOf<TensorSource>): void {
  const isValues = (one: [string, TensorSource]): one is [string, Float32Array] =>
    one[1] instanceof Float32Array;
  const values = (tensors: ReadonlyMap<string, TensorSource>) =>
    new Map([...tensors].filter(isValues));
  const state = { weights: values(weights), moments: values(moments) };
  checkFinite(state, "resume");
  for (const [name, values] of state.moments) {
    const isRight = !areSquares(name) || values.every((value) => value >= 0);
    const must = "means of squares must be at least 0";
    assertInput(isRight, "resume", must, `a negative one in "${name}"`);
  }
}

/** The probable reason of a refusal. */
const OF_ANOTHER = "; are they of another model?";

/** Checks that the tensors are exactly the expected ones, with their shapes. */
export function checkTensors(
  what: string,
  expected: readonly NamedShape[],
  received: ReadonlyMap<string, TensorSource>,
  shapes?: ReadonlyMap<string, readonly number[]>,
): void {
  const cannot = `train from these ${what}`;
  for (const { name, shape } of expected) {
    const values = received.get(name), known = shapes?.get(name);
    const count = elementCount(shape), length = values && bytesOfSource(values) / 4;
    if (length === count && (known === undefined || sameShape(known, shape))) continue;
    const must = shapes ? `shape [${shape}]` : `${count} values`;
    const found = known ? `[${known}]` : length ?? "none";
    throw refusal(cannot, `"${name}" must have ${must}`, `${found}${OF_ANOTHER}`);
  }
  const names = new Set(expected.map(({ name }) => name));
  const unknown = [...received.keys()].find((name) => !names.has(name));
  if (unknown === undefined) return;
  const found = JSON.stringify(unknown) + OF_ANOTHER;
  throw refusal(cannot, "each must be a parameter of the model", found);
}

const isCount = (value: unknown, most: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most;

/** Checks that a run can have the progress of a checkpoint at its step. */
function checkProgress({ step, config }: Resume): void {
  const progress: Partial<Progress> & { readonly data?: unknown } = Object(config?.["progress"]);
  const { step: at = step, update = step, predictions = 0, lossScale, best, data } = progress;
  const { scale = 1, goodSteps = 0, skipped = 0 } = lossScale ?? {};
  const isBest = best === undefined ||
    isCount(best?.step, step) && Number.isFinite(best.loss) && isCount(best.since, step);
  const isRight = isBest && at === step && isCount(update, step) && Number.isFinite(scale) &&
    scale > 0 &&
    isCount(predictions, Number.MAX_SAFE_INTEGER) && isCount(goodSteps, step) &&
    isCount(skipped, step) && (data === undefined || isDataState(data));
  const received = JSON.stringify(progress).slice(0, 200);
  assertInput(isRight, "resume", `the progress of step ${step} must be that of a run`, received);
}

/**
 * Returns weights and moments before the first step: resumed, given, the model's, or random.
 *
 * @param workersRead True if workers can open a file of weights.
 * @throws {RangeError} when given weights do not fit the model.
 */
export async function firstState(
  { parameters, ties }: ModelProgram,
  { model, resume, weights = model.weights, seed, ...options }: CheckedOptions,
  workersRead: boolean,
): Promise<StateOf<TensorSource>> {
  const { optimizer, lora, adapter } = options;
  // Messages must contain all values if a journal is written, or the system is another's.
  const isSent = options.journal !== undefined || options.system !== undefined;
  const isRead = isSent || !workersRead;
  if (resume) {
    checkSameLora(lora, resume);
    checkResume({ parameters }, completeOptimizer(optimizer), resume);
    return isRead ? readState(resume.state) : resume.state;
  }
  const own = parameters.filter(({ name }) => lora && isLora(name));
  const base = parameters.filter((one) => !own.includes(one));
  const given = typeof weights === "string"
    ? await (isRead ? readWeights : locateWeights)(weights, base, ties)
    : weights;
  // The weights of an adapted model can start another run.
  const expected = [...base, ...own.filter(({ name }) => given?.has(name))];
  if (weights && typeof weights !== "string") checkTensors("weights", expected, weights);
  const placed = adapter === undefined ? undefined : await locateAdapter(adapter, own);
  const sourceOf = ({ name, spec }: ModelParameter): TensorSource => {
    const place = placed?.get(name), drawn = { kind: "drawn", spec, name, seed } as const;
    if (place) return isRead ? readTensor(place) : place;
    return given?.get(name) ?? (isSent ? readTensor(drawn) : drawn);
  };
  const first = given && own.length === 0
    ? given
    : new Map(parameters.map((one) => [one.name, sourceOf(one)]));
  return { weights: first, moments: firstAverages(parameters, optimizer, first) };
}

/**
 * Returns the initial weights and moments of jobs. Each adapter starts as in a run with this job only,
 * unless the checkpoint of the run contains it.
 */
export async function firstJobStates(
  { jobs: programs, parameters }: ModelProgram,
  jobs: readonly RunJob[],
  given: CheckedOptions,
  workersRead: boolean,
): Promise<StateOf<TensorSource>> {
  const { resume, optimizer } = given, options = { ...given, resume: undefined };
  const weights = new Map<string, TensorSource>(), moments = new Map<string, TensorSource>();
  const { variants, variantOf } = programs!, [{ lora: any }] = jobs as [RunJob];
  if (resume) {
    const prefixes = jobs.filter(({ kept }) => kept).map(({ name }) => jobParameter(name, ""));
    const isKept = (key: string) =>
      !isLora(key) && !isLora(parameterOf(key)) ||
      prefixes.some((prefix) => key.startsWith(prefix));
    for (const [key, source] of resume.state.weights) if (isKept(key)) weights.set(key, source);
    for (const [key, source] of resume.state.moments) if (isKept(key)) moments.set(key, source);
    const expected = parameters.filter(({ name }) => isKept(name)), state = { weights, moments };
    checkResume({ parameters: expected }, completeOptimizer(optimizer), { ...resume, state });
  } else {
    const base = await firstState(variants[variantOf[0]!]!, { ...options, lora: any }, workersRead);
    for (const [key, source] of base.weights) if (!isLora(key)) weights.set(key, source);
  }
  for (const [i, { name, lora, adapter, seed, kept }] of jobs.entries()) {
    if (kept) continue;
    const program = variants[variantOf[i]!]!;
    const own = await firstState(program, { ...options, lora, adapter, seed }, workersRead);
    for (const [key, source] of own.weights) {
      if (isLora(key)) weights.set(jobParameter(name, key), source);
    }
    for (const [key, source] of own.moments) moments.set(jobParameter(name, key), source);
  }
  return { weights, moments };
}

/** Returns the first averages of the weights, which are the weights. */
function firstAverages(
  parameters: readonly ModelParameter[],
  optimizer: CheckedOptions["optimizer"],
  weights: ReadonlyMap<string, TensorSource>,
): Map<string, TensorSource> {
  if (optimizer?.ema === undefined) return new Map();
  const trained = parameters.filter(({ isFrozen }) => !isFrozen);
  return new Map(trained.map(({ name }) => [`${name}.${AVERAGE}`, weights.get(name)!]));
}

/** Refuses other settings of an adapter than those of its checkpoint. */
function checkSameLora(lora: CheckedOptions["lora"], { config }: Resume): void {
  if (!lora || config?.lora === undefined) return;
  const wanted = keptLora("resume", config.lora), received = JSON.stringify(lora);
  const must = `lora must be ${wanted}, as in the checkpoint`;
  assertInput(wanted === received, "resume", must, received);
}

/** Checks the settings of an adapter in a checkpoint, and returns them as JSON. */
export function keptLora(cannot: string, kept: unknown): string {
  const name = "the lora of the checkpoint";
  check(ADAPTER_OPTIONS.lora.schema, kept, { cannot: `Cannot ${cannot}`, name });
  return JSON.stringify(kept);
}
