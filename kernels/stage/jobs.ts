/**
 * A stage that trains several adapters on one copy of its frozen weights.
 *
 * Each job has its own parameters, gradients and moments, and its own micro-batches in a step.
 * Its kernels run on the same values in the same order as those of a run with this job only, so its
 * bits are the same. To the actors this is one stage: its gradients are those of all jobs, one job after
 * the other, and the names of its parameters begin with that of their job.
 *
 * @module
 */

import type { StageProgram } from "../compile/programs.ts";
import type { Device } from "../devices/device.ts";
import { joinArrays } from "../devices/tensor_memory.ts";
import type { DropoutKey } from "../layers/dropout.ts";
import { type StageMemory, sumMemory } from "./memory.ts";
import type { StageOptions } from "./options.ts";
import type { Bucket } from "./parameters.ts";
import { type ForwardResult, openParts, Stage, type StageParts } from "./stage.ts";
import type { TensorPart } from "./state.ts";

/** The part of a job in a step. */
export interface JobShare {
  /** The job. */
  readonly name: string;
  /** Its first micro-batch; the others follow. */
  readonly first: number;
  /** Number of its micro-batches. */
  readonly count: number;
  /** Predictions of them. */
  readonly predictions: number;
  /** Its optimizer step, from 1. */
  readonly update: number;
  /** Its learning rate. */
  readonly learningRate: number;
  /** Key of its dropout, apart from micro-batches. */
  readonly dropout: Pick<DropoutKey, "seed" | "step">;
}

/** Returns the name of a job's parameter among those of all jobs. */
export const jobParameter = (job: string, parameter: string): string => `${job}/${parameter}`;

/** Returns the part of the job of a micro-batch. */
export function shareOf(shares: readonly JobShare[], microBatch: number): JobShare {
  const share = shares.find(({ first, count }) =>
    microBatch >= first && microBatch < first + count
  );
  if (share) return share;
  throw new RangeError(`Cannot run micro-batch ${microBatch}: it must be that of a job`);
}

/** The stages of several jobs as one; each has one version of its weights. */
export class JobStage extends Stage {
  /** The buckets of all jobs: the job of each, and its number there. */
  readonly #buckets: readonly (Bucket & { readonly job: string; readonly index: number })[];
  readonly #stages: ReadonlyMap<string, Stage>;
  readonly #slices: number;
  #shares: readonly JobShare[] = [];
  /** The factors of the gradients of the step; absent for a job that is not stepped. */
  #scales: ReadonlyMap<string, number> = new Map();

  /** Use {@linkcode openJobs}. */
  constructor(first: StageParts, stages: ReadonlyMap<string, Stage>, slices: number) {
    super(first);
    this.#stages = stages;
    this.#slices = slices;
    let before = 0;
    this.#buckets = [...stages].flatMap(([job, { buckets }]) =>
      buckets.map((bucket, index) => {
        const offset = before;
        before += bucket.length;
        return { ...bucket, offset, job, index };
      })
    );
  }

  /** The buckets of all jobs, one job after the other. */
  override get buckets(): readonly Bucket[] {
    return this.#buckets;
  }

  override get liveActivations(): number {
    const each = new Set([...this.#stages.values()].map(({ inFlight }) => inFlight));
    return [...each].reduce((sum, { count }) => sum + count, 0);
  }

  override get memory(): StageMemory {
    return sumMemory([...this.#stages.values()].map(({ memory }) => memory));
  }

  /** Begins a step of some jobs. */
  beginJobs(shares: readonly JobShare[]): void {
    this.#shares = shares;
  }

  /** Sets the gradient factors of the jobs of a step; null for a job that is not stepped. */
  scaleJobs(scales: readonly (number | null)[]): void {
    const named = this.#shares.map(({ name }, i) => [name, scales[i] ?? null] as const);
    this.#scales = new Map(named.filter((pair): pair is [string, number] => pair[1] !== null));
  }

  override forward(
    ...[microBatch, input, fields, into, age, dropout]: Parameters<Stage["forward"]>
  ): Promise<ForwardResult> {
    const { first, dropout: own } = this.#shareOf(microBatch), stage = this.#stageOf(microBatch);
    const key = dropout && { ...dropout, ...own, microBatch: dropout.microBatch - first };
    return stage.forward(microBatch, input, fields, into, age, key);
  }

  override recompute(microBatch: number): Promise<void> {
    return this.#stageOf(microBatch).recompute(microBatch);
  }

  override drop(microBatch: number): void {
    this.#stageOf(microBatch).drop(microBatch);
  }

  override backward(
    ...[microBatch, ...rest]: Parameters<Stage["backward"]>
  ): ReturnType<Stage["backward"]> {
    return this.#stageOf(microBatch).backward(microBatch, ...rest);
  }

  override zeroGradients(): void {
    for (const stage of this.#stages.values()) stage.zeroGradients();
  }

  /** Always true: a job whose gradients are not finite is found by their squares. */
  override checkGradients(): Promise<boolean> {
    return Promise.resolve(true);
  }

  /** Returns the sums of squares of the jobs of the step. */
  override async gradientSquares(): Promise<Map<string, number>> {
    const squares = new Map<string, number>();
    for (const { name } of this.#shares) {
      const own = await this.#stages.get(name)!.gradientSquares();
      for (const [parameter, sum] of own) squares.set(jobParameter(name, parameter), sum);
    }
    return squares;
  }

  /** Begins the optimizer step of each job that is stepped. */
  override beginStep(): void {
    for (const { name, update, learningRate } of this.#shares) {
      const scale = this.#scales.get(name);
      if (scale !== undefined) this.#stages.get(name)!.beginStep(update, learningRate, scale);
    }
  }

  /** Steps a bucket, if its job is stepped. */
  override async stepBucket(bucket: number): Promise<void> {
    const { job, index } = this.#buckets[bucket]!;
    if (this.#scales.has(job)) await this.#stages.get(job)!.stepBucket(index);
  }

  override write(name: string, values: Float32Array, from?: number): void {
    const found = this.#find(name);
    found.stage.write(found.name, values, from);
  }

  override async read(parts: readonly TensorPart[]): Promise<Float32Array<ArrayBuffer>> {
    const values: Float32Array[] = [];
    for (const part of parts) {
      const { stage, name } = this.#find(part.name);
      values.push(await stage.read([{ ...part, name }]));
    }
    return joinArrays(Float32Array, values);
  }

  /** @throws {Error} always: the state of jobs is read in parts. */
  override save(): never {
    throw new Error("Cannot save jobs at once: their state must be read in parts, received a save");
  }

  #shareOf(microBatch: number): JobShare {
    return shareOf(this.#shares, Math.trunc(microBatch / this.#slices));
  }

  #stageOf(microBatch: number): Stage {
    return this.#stages.get(this.#shareOf(microBatch).name)!;
  }

  /** Returns the stage of a tensor, and its name there: frozen weights are those of any stage. */
  #find(name: string): { readonly stage: Stage; readonly name: string } {
    const end = name.indexOf("/"), stage = this.#stages.get(name.slice(0, Math.max(0, end)));
    const [any] = this.#stages.values();
    return stage ? { stage, name: name.slice(end + 1) } : { stage: any!, name };
  }
}

/**
 * Opens the stage of several jobs.
 *
 * @throws as {@linkcode openStage}.
 */
export async function openJobs(
  device: Device,
  { jobs, slicing }: StageProgram & { readonly jobs: NonNullable<StageProgram["jobs"]> },
  options: StageOptions,
): Promise<JobStage> {
  const { names, variantOf, variants } = jobs, opened = new Map<string, StageParts>();
  for (const [v, variant] of variants.entries()) {
    const own = names.filter((_, job) => variantOf[job] === v);
    const frozen = opened.values().next().value?.frozen;
    const parts = await openParts(device, variant, options, own.length, { frozen });
    for (const [i, name] of own.entries()) opened.set(name, parts[i]!);
  }
  const stages = new Map(names.map((name) => [name, new Stage(opened.get(name)!)]));
  return new JobStage(opened.get(names[0]!)!, stages, slicing?.slices ?? 1);
}
