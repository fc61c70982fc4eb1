/**
 * Jobs: adapters that are trained together on one pipeline of frozen weights.
 *
 * A step of the run has the micro-batches of all jobs that run in it, one job after the other. Each job
 * has its own data, steps, learning rate, clipping and commit, so its bits are those of a run alone.
 *
 * @module
 */

import { join } from "node:path";
import type { Batch } from "../../kernels/mod.ts";
import {
  assertInput,
  isLora,
  jobParameter,
  type JobShare,
  type LoraOptions,
  nameError,
  resultOr,
} from "../../kernels/internal.ts";
import type { Schedule } from "../../schedules/mod.ts";
import { halvesOf } from "../../schedules/internal.ts";
import { stepFolder } from "../checkpoints/format.ts";
import { lstat } from "../checkpoints/lock.ts";
import { isConv1D } from "../checkpoints/hugging_face.ts";
import { readAdapterConfig, writeAdapter } from "../checkpoints/peft.ts";
import { checkNew, writeOwnFolder } from "../checkpoints/write.ts";
import type { HeldState } from "../checkpoints/tensors.ts";
import { firstLossScale, jobScales, squaresOfJob } from "../gradients/commit.ts";
import type { TrainEvent } from "../options/train_events.ts";
import type { RunOptions, TrainOptions } from "../options/train_options.ts";
import { readOptions } from "../options/train_table.ts";
import { pipelineCount } from "../pipeline/layout.ts";
import type { StepRequest } from "../pipeline/step.ts";
import { finiteOnly } from "../pipeline/worker.ts";
import { RUN_FILES } from "../run_folder/metrics_file.ts";
import { readHashed } from "./checkpoint_writer.ts";
import { DataWatch, isDataState, RunData } from "./data.ts";
import { keptLora } from "./first_state.ts";
import {
  countPredictions,
  type KeptJob,
  type PreparedRun,
  rateOf,
  type RunJob,
  stepEvent,
  type TakenStep,
} from "./events.ts";

/** Options that belong to each job, or that runs of jobs do not have. */
const LEFT_OUT = [
  ...["data", "epochs", "adapter", "frozen", "lossScale", "lengths", "progress"],
  ...["evaluation", "journal", "system", "supervisor", "worker"],
] as const;

/** The values of options that runs of jobs can have. */
const ALLOWED: Readonly<Record<string, readonly unknown[]>> = {
  runtime: ["workers", "local", "mpi", "nats"],
  replicas: [1],
  precision: ["fp32"],
  verify: ["none"],
  failover: ["restart"],
  buddy: [false],
};

/** Names of jobs are names of folders. */
const NAME = /^\w[\w.-]{0,63}$/;

/** Names of the files next to these folders. */
const FILES: readonly string[] = [...Object.values(RUN_FILES), "best.json", "finished.json"];

/**
 * Checks the jobs of a run, and returns its options with all its steps.
 *
 * @throws {TypeError} {@linkcode RangeError} with the first option that is not that of a run of jobs.
 */
export function withJobs(given: TrainOptions): TrainOptions & Pick<RunOptions, "data"> {
  const known = Array.isArray(given.jobs) ? given.jobs as NonNullable<TrainOptions["jobs"]> : [];
  const [first] = known, steps = given.steps ?? first?.steps ?? 1;
  const options = readOptions({ ...given, data: first?.data ?? [], steps, epochs: undefined });
  const ensure = (is: boolean, must: string, received: unknown) =>
    assertInput(is, "train jobs", must, received);
  for (const name of LEFT_OUT) {
    ensure(given[name] === undefined, `${name} must be left out`, typeof given[name]);
  }
  for (const [name, values] of Object.entries(ALLOWED)) {
    const value = options[name as keyof typeof options] ?? values[0];
    const known = values.length > 1 ? `one of ${values.join(", ")}` : `${values[0]}`;
    ensure(values.includes(value), `${name} must be ${known}`, value);
  }
  const jobs = known.map((job, i) => {
    const { name, data, start = 1, steps = given.steps! } = job, none = `none of ${name}`;
    const folded = name.toLowerCase(); // some file systems ignore case
    const isName = NAME.test(name) && !stepFolder(folded) && !FILES.includes(folded);
    ensure(isName, "a name must be that of a folder", JSON.stringify(name));
    const before = known.slice(0, i), isShared = before.some((one) => one.data === data);
    const isNew = before.every((one) => one.name.toLowerCase() !== folded);
    ensure(isNew, "names must differ, ignoring case", `${name} twice`);
    const isReadTwice = isShared && "next" in data;
    ensure(!isReadTwice, "an iterator must be the data of one job", `that of ${name}`);
    ensure(steps !== undefined, "steps must be given, of the run or of each job", none);
    const has = (job.lora ?? job.adapter ?? given.lora) !== undefined;
    ensure(has, "lora must be given, of the run or of each job", none);
    const folder = given.out === undefined ? undefined : join(given.out, name);
    const isReplaced = given.resume !== undefined || given.checkpoint?.overwrite === true;
    const isFree = !folder || !lstat(folder) || isReplaced && isAdapter(folder);
    ensure(isFree, "the folder of a job must be new", `${folder}`);
    return { ...job, start, steps };
  });
  const inOrder = jobs.toSorted((a, b) => a.start - b.start);
  // Jobs that have ended before a resumed run may be left out.
  let end = given.resume === undefined ? 0 : inOrder[0]!.start - 1;
  for (const { name, start, steps } of inOrder) {
    const none = `none before ${name} begins in step ${start}`;
    ensure(start <= end + 1, "a job must run in each step", none);
    end = Math.max(end, start - 1 + steps);
  }
  return { ...given, jobs, data: first!.data, steps: end };
}

/** Returns whether a folder has an adapter, which a resumed run may replace. */
const isAdapter = (folder: string): boolean =>
  resultOr(() => readAdapterConfig(folder).rank > 0, false);

/** Progress of jobs in a checkpoint: steps of the run, and each job by its name. */
interface KeptJobs {
  readonly step: number;
  readonly each: Readonly<Record<string, KeptJob>>;
}

/** Returns the jobs of a checkpoint. */
const keptJobs = ({ step, config }: NonNullable<RunOptions["resume"]>): KeptJobs =>
  (config?.["progress"] as { readonly jobs?: KeptJobs })?.jobs ?? { step, each: {} };

/**
 * Returns the progress of a job; undefined if it has not begun.
 *
 * @throws {RangeError} when the checkpoint has another job of this name, or none of a job that should
 * have begun.
 */
function keptJob(
  { name, lora, start, steps }: Pick<RunJob, "name" | "lora" | "start" | "steps">,
  resume: NonNullable<RunOptions["resume"]>,
): KeptJob | undefined {
  const { step: at, each } = keptJobs(resume);
  const kept = Object.hasOwn(Object(each), name) ? each[name]! : undefined;
  const done = Math.max(0, Math.min(steps, at + 1 - start));
  const ensure = (is: boolean, must: string, received: unknown) =>
    assertInput(is, `resume the job ${name}`, must, JSON.stringify(received));
  const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0;
  ensure(isCount(at), "the checkpoint must have its step", at === undefined ? "none" : typeof at);
  if (kept === undefined) {
    ensure(done === 0, `it must be in the checkpoint, or begin after step ${at}`, start);
    return undefined;
  }
  const { step, isOver, lora: own, data } = Object(kept) as KeptJob;
  const isProgress = isCount(step) && typeof isOver === "boolean";
  ensure(isProgress, "its progress must be that of a run", "other values");
  const isSame = isOver ? step <= done : step === done;
  const must = `its start and steps must fit its ${step} steps before step ${at + 1}`;
  ensure(isSame, must, { start, steps });
  const wanted = keptLora(`resume the job ${name}`, own);
  ensure(wanted === JSON.stringify(lora), `lora must be ${wanted}`, lora);
  const isState = data === undefined || isDataState(data);
  ensure(isState, "the state of its data must be that of a run", data);
  return kept;
}

/** Returns all settings of an adapter, given or read from its folder; undefined if there is none. */
export function loraOf(
  { lora, adapter }: Pick<RunOptions, "lora" | "adapter">,
): Required<LoraOptions> | undefined {
  const asked = lora ?? (adapter === undefined ? undefined : readAdapterConfig(adapter));
  return asked && { rank: asked.rank, alpha: asked.alpha ?? asked.rank, target: asked.target };
}

/** Fills in the options of jobs that are those of the run. */
export function fillJobs(
  { jobs, ...run }: RunOptions & { readonly microBatches: number; readonly seed: number },
): readonly RunJob[] | undefined {
  return jobs?.map((job) => {
    const { name, data, adapter, seed = run.seed, steps = 1, start = 1 } = job;
    const lora = loraOf(job) ?? loraOf({ lora: run.lora! })!;
    const { learningRate = run.learningRate } = job, { microBatches } = run;
    const rate = rateOf({ ...run, steps, ...learningRate !== undefined && { learningRate } });
    return {
      ...{ name, data, lora, adapter, seed, steps, start, rate, microBatches },
      kept: run.resume && keptJob({ name, lora, steps, start }, run.resume),
    };
  });
}

/** Returns whether a job runs in a step of the run. */
const runsIn = ({ start, steps }: Pick<RunJob, "start" | "steps">, step: number): boolean =>
  step >= start && step < start + steps;

/** Returns the most jobs that run in one step. */
export const mostJobs = (jobs: readonly RunJob[]): number =>
  Math.max(...jobs.map(({ start }) => jobs.filter((job) => runsIn(job, start)).length));

/** Refuses a schedule that would add the gradients of a job in another order than alone. */
export function assertShareable(schedule: Schedule): void {
  const { updates, name } = schedule;
  const isOne = updates === "flush" && pipelineCount(schedule) === 1 && halvesOf(schedule) === 1;
  assertInput(isOne, "train jobs", "the schedule must have a flush and one pipeline", name);
}

/** Reads the state that the workers hold. */
type Read = <T>(use: (state: HeldState) => Promise<T>) => Promise<T>;

/** A job of a run in progress. */
interface RunningJob {
  readonly job: RunJob;
  readonly data: RunData;
  /** Steps that are done. */
  step: number;
  /** True if it has no more data, or has failed. */
  isOver: boolean;
  /** `ended`: its event is due. */
  state: "running" | "ended" | "closed";
}

/** The jobs of a run, with their data. */
export class Jobs {
  /** Reports micro-batches that do not come in time. */
  readonly watch: DataWatch;
  readonly heldOut: readonly Batch[] = [];
  readonly #jobs: readonly RunningJob[];
  readonly #errors: Error[] = [];
  #step = 0;

  /** Makes the jobs of a run before its first step. */
  constructor(private readonly prepared: PreparedRun) {
    this.watch = new DataWatch(prepared.announce);
    const { resume } = prepared;
    if (resume) this.#step = keptJobs(resume).step;
    this.#jobs = prepared.jobs!.map((job) => {
      const { kept: { step, isOver, data: state } = { step: 0, isOver: false }, steps } = job;
      const from = resume && { ...resume, step, config: { progress: { data: state } } };
      const data = new RunData({ ...prepared, ...job, resume: from }, this.watch);
      return { job, data, step, isOver, state: isOver || step === steps ? "closed" : "running" };
    });
  }

  /** Progress of the jobs, as a checkpoint keeps it. */
  get kept(): { readonly jobs: KeptJobs } {
    const each = this.#jobs.map(({ job: { name, lora }, data, step, isOver }) =>
      [name, { step, isOver, lora, ...data.kept }] as const
    );
    return { jobs: { step: this.#step, each: Object.fromEntries(each) } };
  }

  /** Draws the first step of each job, so that errors come now. */
  async begin(): Promise<void> {
    for (const { data, state } of this.#jobs) if (state === "running") await data.begin();
  }

  /**
   * Returns the micro-batches of the next step in which a job runs, and the parts of the jobs; undefined
   * after the last one.
   */
  async next(): Promise<Pick<StepRequest, "microBatches" | "jobs"> | undefined> {
    const microBatches: Batch[] = [], jobs: JobShare[] = [];
    while (jobs.length === 0) {
      const step = ++this.#step;
      if (step > this.prepared.steps) return undefined;
      for (const one of this.#jobs) {
        if (one.state !== "running" || !runsIn(one.job, step)) continue;
        const drawn = await this.#draw(one);
        if (!drawn) continue;
        jobs.push({ ...drawn.share, first: microBatches.length });
        microBatches.push(...drawn.batches);
      }
    }
    return { microBatches, jobs };
  }

  /** Draws the micro-batches of the next step of a job, and its part; undefined if it has ended. */
  async #draw(one: RunningJob) {
    const { job: { name, rate, seed }, step } = one, update = step + 1;
    try {
      const { microBatches: batches } = await one.data.next() ?? {};
      if (batches) {
        const predictions = countPredictions(this.prepared, batches);
        const learningRate = rate(update), dropout = { seed, step: update };
        const count = batches.length;
        return { batches, share: { name, count, predictions, update, learningRate, dropout } };
      }
      one.state = "ended";
      one.isOver = !this.prepared.signal?.aborted;
      return undefined;
    } catch (error) {
      this.#fail(one, error);
      return undefined;
    }
  }

  #fail(one: RunningJob, error: unknown): void {
    one.state = "closed";
    one.isOver = true;
    this.#errors.push(nameError(`Cannot train the job ${one.job.name}`, error));
  }

  /** Yields the events of the jobs of a step. A job whose step cannot be committed fails. */
  *steps({ request, outcome, seconds }: TakenStep): Generator<TrainEvent, void> {
    const { losses, updates: [squares = new Map()] } = outcome, { jobs = [] } = request;
    const scales = jobScales(jobs, losses, squares, this.prepared.clip);
    for (const [i, { name, first, count, predictions, learningRate }] of jobs.entries()) {
      const one = this.#jobs.find(({ job }) => job.name === name)!, end = first + count;
      const microBatches = request.microBatches.slice(first, end);
      const own = {
        losses: losses.slice(first, end),
        updates: [squaresOfJob(name, squares)],
        isCommitted: scales[i] !== null,
        // The actions of all jobs are those of one step.
        traces: i === 0 ? outcome.traces : [],
      };
      const taken = {
        request: { ...request, microBatches, predictions, learningRate },
        outcome: { ...outcome, ...own },
        seconds,
      };
      try {
        const event = stepEvent(this.prepared, ++one.step, taken, firstLossScale(1));
        if (one.step === one.job.steps) one.state = "ended";
        if (event.type === "step") yield { ...event, job: name };
      } catch (error) {
        this.#fail(one, error);
      }
    }
  }

  /** Writes the adapters of the jobs that have ended, and yields their events. */
  async *ended(read: Read): AsyncGenerator<TrainEvent, void> {
    for (const one of this.#jobs.filter(({ state }) => state === "ended")) {
      one.state = "closed";
      try {
        yield await this.#end(one, read);
      } catch (error) {
        this.#fail(one, error);
      }
    }
  }

  /**
   * Ends the jobs that still run.
   *
   * @throws {Error} the first failure of a job, with later ones as its `suppressed`.
   */
  async *close(read: Read): AsyncGenerator<TrainEvent, void> {
    for (const one of this.#jobs) if (one.state === "running" && one.step > 0) one.state = "ended";
    yield* this.ended(read);
    const [first, ...suppressed] = this.#errors;
    if (first) throw Object.assign(first, suppressed.length > 0 ? { suppressed } : {});
  }

  async #end({ job, step }: RunningJob, read: Read): Promise<TrainEvent> {
    const { name, lora } = job, { out, model } = this.prepared;
    const { hash, weights } = await read((state) => readAdapter(finiteOnly(state, step), name));
    const adapter = out === undefined ? null : join(out, name);
    if (adapter !== null) {
      // A run that resumes or overwrites replaces its adapter.
      if (!isAdapter(adapter)) await checkNew(adapter, "folder");
      const shapes = new Map(model.parameters.map((one) => [one.name, one.shape]));
      const shapeOf = (parameter: string) => shapes.get(jobParameter(name, parameter))!;
      const parameters = [...weights.keys()].map((one) => ({ name: one, shape: shapeOf(one) }));
      const isTransposed = parameters.some(({ name: own, shape: [, inputs] }) => {
        const [rows, columns] = shapes.get(own.replace("lora_A.", "")) ?? [];
        // A square weight does not say which of its sides is the input.
        const isKnown = rows !== columns, architecture = model.name as "gpt2";
        return isKnown ? rows === inputs : isConv1D({ architecture }, own);
      });
      const written = { lora, parameters, weights, isTransposed };
      await writeAdapter(adapter, written, undefined, writeOwnFolder);
    }
    return { type: "job", job: name, step, weightsHash: hash, adapter, weights };
  }

  /** Closes the data of all jobs. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { data } of this.#jobs) await data[Symbol.asyncDispose]();
  }
}

/** Reads the adapter of a job, and the hash that all weights of a run with this job only have. */
function readAdapter(state: HeldState, job: string): ReturnType<typeof readHashed> {
  const { model, optimizer } = state.shapes, prefix = jobParameter(job, "");
  const isOwn = (name: string) => name.startsWith(prefix);
  const bare = (name: string) => isOwn(name) ? name.slice(prefix.length) : name;
  const names = [...model.keys()].filter((name) => isOwn(name) || !isLora(name));
  const weights = names.sort((a, b) => bare(a) < bare(b) ? -1 : 1);
  const moments = [...optimizer.keys()].filter((name) => isOwn(name));
  return readHashed(state, { moments, weights }, (name) => isOwn(name) ? bare(name) : undefined);
}
