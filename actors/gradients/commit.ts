/**
 * The commit of a step, its loss and its norm, and errors about numbers that are not finite.
 *
 * [Note: the commit of a step] No worker changes a weight before every copy of every stage has voted
 * that its gradients are finite, and so small that no sum of copies can overflow. So a step is taken
 * in all buckets of all workers or in none, and nothing is ever undone. (AxoNN's code looks for an
 * overflow bucket by bucket, when earlier buckets have been stepped.)
 *
 * Loss scaling for mixed precision: gradients are multiplied by a factor so that small ones do not
 * vanish in FP16, and divided by it before the optimizer (Micikevicius et al. 2018, section 3.2).
 *
 * [Note: digests] Copies of a stage are compared by digests of gradients, weights and messages. A
 * digest is a CRC-32: a change within 32 bits in a row always changes it.
 *
 * @module
 */

import type { Batch, ModelProgram, StageValues, TensorPart } from "../../kernels/mod.ts";
import {
  builtin,
  elementCount,
  F32_SQUARES_MAX,
  jobParameter,
  type JobShare,
  keyed,
  refusal,
  type Stage,
  type StageState,
} from "../../kernels/internal.ts";
import type { Schedule } from "../../schedules/mod.ts";

/** Sums of squares of gradients, by full name of the parameter. */
export type GradientSquares = ReadonlyMap<string, number>;

/** The norm of all gradients: sums of squares added in f64 in the order of parameter names. */
export function gradientNorm(squares: GradientSquares): number {
  let sum = 0;
  for (const name of [...squares.keys()].sort()) sum += squares.get(name)!;
  return Math.sqrt(sum);
}

/** The norm of all gradients of a step: the mean over its updates. */
export function meanNorm(updates: readonly GradientSquares[]): number {
  return updates.reduce((sum, squares) => sum + gradientNorm(squares), 0) / updates.length;
}

/** Keeps the clip factor finite if the norm is zero, as in PyTorch. */
const CLIP_EPSILON = 1e-6;

/**
 * Returns the factor by which clipping multiplies all gradients, as PyTorch's `clip_grad_norm_` does.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const squares = new Map([["a.weight", 9], ["b.weight", 16]]);
 * assert.equal(clipFactor(undefined, squares, 1), 1);
 * assert.ok(Math.abs(clipFactor(1, squares, 1) - 1 / 5) < 1e-6);
 * ```
 */
export function clipFactor(
  clip: number | undefined,
  squares: GradientSquares,
  lossScale: number,
): number {
  if (clip === undefined) return 1;
  return Math.min(1, clip / (gradientNorm(squares) / lossScale + CLIP_EPSILON));
}

/** Options of the decision on a step. */
export interface DecisionOptions {
  /** For each stage, the number of its copies. */
  readonly copies: readonly number[];
  /** Workers, each of which reports its sums once. */
  readonly workers: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
  /** The largest norm of all gradients; a larger one is scaled down. */
  readonly clip?: number | undefined;
  /** True if a step is committed only when all sums are there, so that each worker can end it alone. */
  readonly waitsForSums?: boolean | undefined;
}

/** The decision of all copies on a step. */
type CommitOutcome =
  | { readonly isCommitted: true; readonly gradientScale: number }
  | { readonly isCommitted: false };

/** Decides whether a step is committed. */
export class CommitDecision {
  /** Copies that have not voted, by stage. */
  readonly #votesMissing: number[];
  readonly #reducing = new Set<number>();
  /** Sums of squares of the gradients that have been reported. */
  readonly squares: Map<string, number> = new Map();
  #isSafe = true;
  #sumsMissing: number;

  constructor(private readonly options: DecisionOptions) {
    this.#votesMissing = [...options.copies];
    this.#sumsMissing = options.workers;
  }

  /** True if every copy has voted. */
  get hasAllVotes(): boolean {
    return this.#votesMissing.every((missing) => missing === 0);
  }

  /** Takes the vote of a copy of a stage that has all its gradients. */
  vote(stage: number, isSafe: boolean): void {
    this.#votesMissing[stage]!--;
    this.#isSafe &&= isSafe;
  }

  /** Takes the report of a worker that has the sums of all copies. */
  addSquares(squares: GradientSquares): void {
    for (const [name, sum] of squares) this.squares.set(name, sum);
    this.#sumsMissing--;
  }

  /** Returns the stages whose all-reduce starts now; each stage once. */
  startReducing(): number[] {
    if (!this.#isSafe) return [];
    const stages = [...this.#votesMissing.keys()].filter((stage) =>
      this.#votesMissing[stage] === 0 && !this.#reducing.has(stage) &&
      (this.hasAllVotes || this.options.eagerStages.includes(stage))
    );
    for (const stage of stages) this.#reducing.add(stage);
    return stages;
  }

  /** Decides once all votes are there; undefined while the norm is needed and not known. */
  decide(isLossFinite: boolean, lossScale: number): CommitOutcome | undefined {
    const { clip, waitsForSums } = this.options;
    if (!this.#isSafe || !isLossFinite) return { isCommitted: false };
    if ((clip !== undefined || waitsForSums) && this.#sumsMissing > 0) return undefined;
    const factor = clipFactor(clip, this.squares, lossScale);
    return { isCommitted: true, gradientScale: factor / lossScale };
  }
}

/**
 * Returns the factor of the gradients of each job, which is committed alone; null for a job
 * whose losses or gradients are not finite.
 *
 * @param squares of the parameters of all jobs.
 */
export function jobScales(
  jobs: readonly JobShare[],
  losses: readonly Float32Array[],
  squares: GradientSquares,
  clip: number | undefined,
): (number | null)[] {
  return jobs.map(({ name, first, count }) => {
    const own = squaresOfJob(name, squares);
    const isSafe = areFinite(losses.slice(first, first + count), []) &&
      own.values().every((sum) => sum <= F32_SQUARES_MAX);
    return isSafe ? clipFactor(clip, own, 1) : null;
  });
}

/** Returns the sums of squares of a job. */
export const squaresOfJob = (job: string, squares: GradientSquares): GradientSquares =>
  new Map([...squares].filter(([name]) => name.startsWith(jobParameter(job, ""))));

/** A factor of the loss, or `dynamic` to find it while training. */
export type LossScale = number | "dynamic";

/**
 * The state of a dynamic scale, in checkpoints: the factor of the next step, steps taken in a row since
 * it last changed, and steps in a row that were not taken.
 */
export type LossScaleState = Readonly<ReturnType<typeof firstLossScale>>;

/** Good steps after which the scale doubles, as in PyTorch's GradScaler. */
const GROWTH_INTERVAL = 2000;
const FIRST_DYNAMIC_SCALE = 65_536;

/** Minimum of a dynamic scale: below the smallest normal FP16 number, gradients near 1 vanish, too. */
export const SCALE_MIN = 2 ** -14;

/** The highest scale: even the smallest FP16 gradient, 2^-24, overflows under it. */
export const SCALE_MAX = 2 ** 40;

/** Maximum number of skipped steps in a row: gradients that overflow at every scale are an error. */
const SKIPS_MAX = 20;

/** Returns the state at the beginning of a run. */
export function firstLossScale(lossScale: LossScale) {
  const scale = lossScale === "dynamic" ? FIRST_DYNAMIC_SCALE : lossScale;
  return { scale, goodSteps: 0, skipped: 0 };
}

/**
 * Returns the state after a step: an overflow halves a dynamic scale, and a long row of steps without
 * overflow doubles it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const start = firstLossScale("dynamic");
 * assert.equal(start.scale, 65536);
 * assert.deepEqual(nextLossScale("dynamic", start, false), { scale: 32768, goodSteps: 0, skipped: 1 });
 * assert.deepEqual(nextLossScale(128, firstLossScale(128), false), {
 *   scale: 128,
 *   goodSteps: 0,
 *   skipped: 1,
 * });
 * ```
 */
export function nextLossScale(
  lossScale: LossScale,
  { scale, goodSteps, skipped }: LossScaleState,
  isTaken: boolean,
): LossScaleState {
  const isDynamic = lossScale === "dynamic";
  if (!isTaken) {
    return { scale: isDynamic ? scale / 2 : scale, goodSteps: 0, skipped: skipped + 1 };
  }
  const grows = isDynamic && goodSteps + 1 === GROWTH_INTERVAL;
  return {
    scale: grows ? Math.min(2 * scale, SCALE_MAX) : scale,
    goodSteps: grows ? 0 : goodSteps + 1,
    skipped: 0,
  };
}

/**
 * The loss of a step or an evaluation: the samples' losses added in f64 in the order of the
 * micro-batches, divided by the number of predictions of all of them.
 */
export function meanLoss(losses: readonly Float32Array[], predictions: number): number {
  let sum = 0;
  for (const samples of losses) for (const loss of samples) sum += loss;
  return sum / predictions;
}

/** A loss, a gradient or a weight is not finite, so that the run cannot continue. */
export class NonFiniteError extends Error {
  /** `NonFiniteError`. */
  override name = "NonFiniteError";
}

/** The remedy in these errors. */
const REMEDY = "lower the learning rate, or resume from the last checkpoint";

/** The remedy if the numbers have already reached the weights. */
const REMEDY_WHEN_LOST = "the weights are lost: resume from the last checkpoint";

/** Throws if a step was not taken, unless a loss scale may have been too high. */
export function assertScaled(
  { updates }: Schedule,
  lossScale: LossScale | undefined,
  { scale, skipped }: LossScaleState,
  step: number,
  loss: number,
): void {
  const isLowest = lossScale === "dynamic" && scale <= SCALE_MIN;
  if (lossScale !== undefined && skipped + 1 < SKIPS_MAX && !isLowest) return;
  const remedy = updates === "flush" ? REMEDY : REMEDY_WHEN_LOST;
  const before = isLowest
    ? ` with the lowest loss scale, ${scale}`
    : skipped === 0
    ? ""
    : ` after ${skipped} skipped steps`;
  throw new NonFiniteError(
    `Cannot take step ${step}${before}: loss and gradients must be finite, received loss ${loss}; ${remedy}`,
  );
}

/** NaN is always a mistake; infinities, which may be intended, as in a mask, are checked after it. */
const NON_FINITE = [Number.isNaN, (value: number) => Math.abs(value) === Infinity];

/**
 * Checks that the data is not the cause of a failure: no number of a field that the model reads may be
 * NaN or infinite.
 *
 * @param what The action that failed, and the values that must be finite for it.
 * @param how True if a loss scale may be the cause of infinities, and if the weights are lost.
 * @throws {NonFiniteError} with the field, the micro-batch and the row, each counted from 0.
 */
export function assertFiniteData(
  { programs }: Pick<ModelProgram, "programs">,
  microBatches: readonly Batch[],
  what: string,
  loss: number,
  how: { readonly isScaled?: boolean; readonly isLost?: boolean } = {},
): void {
  for (const isWrong of NON_FINITE.slice(0, how.isScaled ? 1 : 2)) {
    for (const { name, shape, dtype } of programs.flatMap(({ fields }) => fields)) {
      for (const [i, batch] of dtype.startsWith("f") ? microBatches.entries() : []) {
        const values = batch[name] as Float32Array, at = values.findIndex(isWrong);
        if (at < 0) continue;
        const row = Math.floor(at / elementCount(shape.slice(1)));
        const where = `row ${row} of the field "${name}" of micro-batch ${i}`;
        const lost = how.isLost ? `; ${REMEDY_WHEN_LOST}` : "";
        const remedy = `correct or leave out such rows${
          isWrong(NaN) ? "" : `, or ${REMEDY}`
        }${lost}`;
        const found = `the data has ${values[at]} in ${where}: ${remedy}`;
        throw new NonFiniteError(`Cannot ${what} must be finite, received loss ${loss}; ${found}`);
      }
    }
  }
}

/** The error of a run in which no step was taken. */
export function allSkipped(
  steps: number,
  lossScale: LossScale | undefined,
  { scale }: LossScaleState,
): NonFiniteError {
  const remedy = lossScale === "dynamic"
    ? `let it run for more steps, or begin with a loss scale below ${scale}`
    : "use a lower loss scale, or a dynamic one";
  return new NonFiniteError(
    `Cannot end after ${steps} steps: some must have been taken, received an overflow in each under the loss scale ${lossScale}; ${remedy}`,
  );
}

/** Returns true if all losses, and the sums of squares of all updates, are finite. */
export function areFinite(
  losses: readonly Float32Array[],
  updates: readonly GradientSquares[],
): boolean {
  return losses.every((samples) => samples.every(Number.isFinite)) &&
    updates.every((squares) => squares.values().every(Number.isFinite));
}

/**
 * Checks that parts of weights and moments may be saved.
 *
 * @param values The parts, one after the other.
 * @throws {NonFiniteError} with the first number that is not finite.
 */
export function assertFinite(
  parts: readonly TensorPart[],
  values: Float32Array,
  step: number,
): void {
  const wrong = indexOfNonFinite(values);
  if (wrong === values.length) return;
  let at = 0;
  const part = parts.find(({ from, to }) => (at += to - from) > wrong);
  throw new NonFiniteError(
    `Cannot keep step ${step}: weights and moments must be finite, received ${
      values[wrong]
    } in "${part?.name}"; ${REMEDY}`,
  );
}

/**
 * Refuses weights and moments that are not finite.
 *
 * @throws {RangeError} with the first such number.
 */
export function checkFinite({ weights, moments }: StageState, cannot: string): void {
  for (const [name, values] of [...weights, ...moments]) {
    const wrong = indexOfNonFinite(values);
    if (wrong === values.length) continue;
    throw refusal(cannot, "weights and moments must be finite", `${values[wrong]} in "${name}"`);
  }
}

/** Returns the index of the first number that is not finite; the length if all are. */
function indexOfNonFinite(values: Float32Array): number {
  let i = 0;
  while (i < values.length && Number.isFinite(values[i])) i++;
  return i;
}

const { crc32 } = builtin("node:zlib");

/** The first digest of a sequence of arrays. */
const NO_DIGEST = 17;

/**
 * Returns the digest of an array, after those before it: CRC-32, which any change within 32 bits in a
 * row changes. `node:zlib` computes it ten times as fast as our loops.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(digestOf(Float32Array.of(1, 2)), digestOf(Float32Array.of(1, 2)));
 * assert.notEqual(digestOf(Float32Array.of(1, 2)), digestOf(Float32Array.of(1, -2)));
 * ```
 */
export function digestOf(
  { buffer, byteOffset, byteLength }: ArrayBufferView,
  before = NO_DIGEST,
): number {
  return crc32(new Uint8Array(buffer, byteOffset, byteLength), before);
}

/** Returns the digest of values that cross the border of a stage. */
export const digestOfValues = (values: StageValues): number =>
  Object.values(keyed(values)).reduce((sum, array) => digestOf(array, sum), NO_DIGEST);

/** Returns the digest of all gradients of a stage, or of its weights and moments. */
export async function digestOfStage(
  kernels: Pick<Stage, "scan">,
  what: "gradients" | "state",
): Promise<number> {
  let digest = NO_DIGEST;
  await kernels.scan(what, (piece) => digest = digestOf(piece, digest));
  return digest;
}

/** The digest of a copy of a stage. */
export interface CopyDigest {
  /** The stage. */
  readonly stage: number;
  /** The place of the copy in the copy order of the stage. */
  readonly rank: number;
  /** The digest of its summed gradients. */
  readonly digest: number;
}

/** Returns the digests of stages whose copies differ, stage by stage. */
export function unequalCopies(digests: readonly CopyDigest[]): CopyDigest[] {
  return Map.groupBy(digests, ({ stage }) => stage).values().toArray()
    .filter((copies) => copies.some(({ digest }) => digest !== copies[0]!.digest)).flat();
}
