/**
 * The data of a run, whose beginning has been looked at: what is wrong with it is told before
 * anything runs.
 *
 * @module
 */

import type { Batch } from "../../kernels/mod.ts";
import { type BatchCheck, batchCheck, nameError } from "../../kernels/internal.ts";
import {
  type Batches,
  type Data,
  isIterable,
  isSource,
  type TrainOptions,
} from "../options/train_options.ts";
import type { TrainEvent } from "./events.ts";
import type { PreparedRun } from "./prepared_run.ts";

/** Where data stood after some micro-batches. */
interface DataState {
  /** How many had been taken. */
  readonly microBatches: number;
  /** What the data said then. */
  readonly state: unknown;
}

/** Characters of JSON of a state. */
const STATE_MAX = 2 ** 16;

/**
 * A state as a checkpoint will give it back, so that it is no surprise when a run goes on.
 *
 * @throws {TypeError} when JSON cannot say it, or takes too many characters.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(encodeState({ shard: 3, left: undefined }), { shard: 3 });
 * assert.throws(() => encodeState(() => 1), /must be something that JSON can say/);
 * ```
 */
export function encodeState(state: unknown): unknown {
  const cannot = "Cannot keep the state of the data: it must be something that JSON can say";
  let text: string | undefined;
  try {
    text = JSON.stringify(state);
  } catch (cause) {
    throw new TypeError(`${cannot}, received what it cannot (${firstLine(cause)})`, { cause });
  }
  if (text === undefined) throw new TypeError(`${cannot}, received ${typeof state}`);
  if (text.length <= STATE_MAX) return JSON.parse(text);
  throw new TypeError(`${cannot} in ${STATE_MAX} characters, received ${text.length}`);
}

const firstLine = (error: unknown) => String((error as Error)?.message ?? error).split("\n")[0];

/** Whether a checkpoint may say so of data. */
export function isDataState(value: unknown): value is DataState {
  const { microBatches } = Object(value) as Partial<DataState>;
  return Number.isSafeInteger(microBatches) && microBatches! >= 0 && "state" in Object(value);
}

type WaitEvent = Extract<TrainEvent, { type: "wait" }>;

/** Time after which a micro-batch that does not come is reported. */
const WAIT_SECONDS = 30;

/** Reports each micro-batch that does not come in time, once. */
export class DataWatch {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #report = (_: WaitEvent): void => {};

  /** @param announce gets the reports in words. */
  constructor(readonly announce: (line: string) => void) {}

  /** The data is asked for a micro-batch. */
  ask(step: number, microBatch: number): void {
    this.#timer = setTimeout(() => {
      const what = `step ${step} waits for its micro-batch ${microBatch}`;
      this.announce(`The data has not answered for ${WAIT_SECONDS} s: ${what}`);
      this.#report({ type: "wait", step, microBatch });
    }, 1000 * WAIT_SECONDS);
  }

  /** It has answered, or nothing is waited for any more. @returns whether it was asked. */
  answered(): boolean {
    const isAsked = this.#timer !== undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return isAsked;
  }

  /** Yields the reports until a promise is settled; returns its value. */
  async *until<T>(coming: Promise<T>): AsyncGenerator<WaitEvent, T> {
    for (;;) {
      const { promise, resolve } = Promise.withResolvers<WaitEvent | undefined>();
      this.#report = resolve;
      coming.then(() => resolve(undefined), () => resolve(undefined));
      const event = await promise;
      if (!event) return await coming;
      yield event;
    }
  }
}

/** Names in an error of the data the micro-batch that was asked for, unless it does so itself. */
export function nameDataError(cause: unknown, step: number, microBatch: number): unknown {
  const name = `micro-batch ${microBatch} of step ${step}`;
  return String(cause).includes(name) ? cause : nameError(`Cannot take ${name}`, cause);
}

/** Arrays that devices read. */
const ARRAYS = [Float32Array, Float16Array, Int32Array, BigInt64Array, Uint8Array] as const;

/**
 * A micro-batch whose arrays nobody else has. What no message can carry is left out.
 *
 * It is copied before it is looked at, so that what was looked at is what is learnt.
 *
 * @param name of the micro-batch, as a refusal says it.
 * @throws {TypeError} when it is no record, or not what the model reads.
 */
function takeBatch(batch: Batch, name: string, check: BatchCheck): Batch {
  if (typeof batch !== "object" || batch === null) {
    throw new TypeError(
      `Cannot train on ${name}: it must be a record of typed arrays, received ${
        String(batch).slice(0, 100)
      }`,
    );
  }
  const fields = Object.entries<unknown>(batch).map(([field, value]) => [field, ownValue(value)]);
  const own: Record<string, unknown> = Object.fromEntries(fields);
  const problem = check(own as Batch);
  if (problem !== undefined) throw new TypeError(`Cannot train on ${name}: ${problem}`);
  for (const field of Object.keys(own)) if (!isCarried(own[field])) delete own[field];
  return own as Batch;
}

function ownValue(value: unknown): unknown {
  // A `Buffer` is an `Uint8Array`, and its slices are views.
  const Plain = ARRAYS.find((one) => value instanceof one);
  // What has lost its memory is looked at as it is: it has no elements.
  if (!isTypedArray(value) || value.length === 0) return value;
  return Plain ? new Plain(value as never) : value.slice();
}

const isTypedArray = (value: unknown): value is Int8Array =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const isCarried = (value: unknown) =>
  isTypedArray(value) || ["number", "string", "boolean", "bigint"].includes(typeof value);

/** What decides which micro-batches a run takes. */
interface StepDataOptions {
  /** Micro-batches of a step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** Steps that are done: they have had theirs. */
  readonly done: number;
  /** Steps of the whole run. */
  readonly steps: number;
  /** What a checkpoint says of the data at the end of them. */
  readonly state?: DataState | undefined;
  /** Whether a last step that has fewer is left out. */
  readonly dropLast: boolean;
  /** Says what is wrong with a micro-batch. */
  readonly check: BatchCheck;
  /** Ends the wait for one. */
  readonly signal?: AbortSignal | undefined;
  /** Reports micro-batches that do not come in time. */
  readonly watch: DataWatch;
}

/** The micro-batches of a run. */
interface StepData {
  /**
   * The micro-batches of the next step; undefined where a last, smaller one is left out, or the run
   * was told to end meanwhile.
   *
   * @throws {RangeError} when there are none; as {@linkcode takeSteps}.
   */
  next(): Promise<readonly Batch[] | undefined>;
  /** Draws the next step, if there is one, before it is asked for, so that errors come now. */
  begin(): Promise<void>;
  /** What a checkpoint says of the data after the steps that were asked for. */
  readonly state: DataState | undefined;
  /**
   * Closes the iterator, the first time that it is called.
   *
   * @throws what it throws.
   */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Opens the data of a run. */
function openStepData(data: Data, options: StepDataOptions): StepData {
  const steps = takeSteps(data, options), { watch } = options;
  const draw = () => untilAborted(steps.next(), options.signal);
  let drawn: ReturnType<typeof draw> | undefined, isClosed = false;
  let { state } = options, step = options.done;
  return {
    async begin() {
      if (options.done < options.steps && !options.signal?.aborted) await (drawn = draw());
    },
    async next() {
      step++;
      const taken = await (drawn ?? draw());
      drawn = undefined;
      if (!taken) return undefined;
      if (taken.done) {
        throw new RangeError(
          `Cannot run step ${step}: the data must have micro-batches for every step, received too few`,
        );
      }
      // Nothing of a step that was left out has been learnt.
      if (taken.value.batches.length === 0) return undefined;
      state = taken.value.state;
      return taken.value.batches;
    },
    get state() {
      return state;
    },
    async [Symbol.asyncDispose]() {
      if (isClosed) return;
      isClosed = true;
      const closing = steps.return();
      // Data that has not answered yet may never do so.
      if (watch.answered()) closing.catch(() => {});
      else await closing;
    },
  };
}

/** The micro-batches of a step, and what the data says of itself after them. */
interface Step {
  readonly batches: readonly Batch[];
  readonly state: DataState | undefined;
}

/**
 * The micro-batches of each step after those that are done; the last step may have fewer, or none
 * where what was left is dropped.
 *
 * They are copied as they come, and then looked at. Whoever makes them may use their buffers again
 * for the next one, while these wait for the rest of their step, are in flight, or are kept to take a
 * step again.
 *
 * @throws {TypeError} when a micro-batch is none that the model can read, saying which one it is.
 * @throws {Error} what the data throws, with the micro-batch that it was asked for.
 */
async function* takeSteps(data: Data, options: StepDataOptions): AsyncGenerator<Step, void> {
  const { microBatches, done, dropLast, check, watch } = options, first = done * microBatches;
  const { source, skipped, taken } = beginAt(data, options);
  let number = first - skipped, batches: Batch[] = [];
  const place = () => [Math.floor(number / microBatches) + 1, number % microBatches] as const;
  const name = () => `micro-batch ${place()[1]} of step ${place()[0]}`;
  const step = (): Step => ({ batches, state: stateOf(data, taken + number - first) });
  try {
    watch.ask(...place());
    for await (const batch of source) {
      watch.answered();
      if (number >= first) batches.push(takeBatch(batch, name(), check));
      number++;
      if (batches.length === microBatches) {
        yield step();
        batches = [];
      }
      watch.ask(...place());
    }
  } catch (cause) {
    throw watch.answered() ? nameDataError(cause, ...place()) : cause;
  } finally {
    watch.answered();
  }
  if (batches.length === 0) return;
  // An empty step says that what was left was dropped.
  yield dropLast ? { batches: [], state: undefined } : step();
}

/** Where data begins: how many of its micro-batches were taken before, and how many are to be skipped. */
function beginAt(data: Data, { microBatches, done, state }: StepDataOptions) {
  const first = done * microBatches;
  // What can be iterated goes on from where it is.
  if (!isSource(data) || (first === 0 && isIterable(data))) {
    return { source: data as Batches, skipped: first, taken: first };
  }
  const { microBatches: taken = first, state: kept } = (data.state && state) ?? {};
  const cannot = `Cannot begin the data at micro-batch ${taken}`;
  let source: Batches;
  try {
    source = data.from(taken, kept);
  } catch (cause) {
    throw nameError(cannot, cause);
  }
  if (isIterable(source)) return { source, skipped: 0, taken };
  throw new TypeError(
    `${cannot}: from must return an iterable, or an async one, received ${typeof source}`,
  );
}

/** What a checkpoint keeps of data of which `taken` micro-batches have been taken. */
function stateOf(data: Data, taken: number): DataState | undefined {
  if (!isSource(data) || !data.state) return undefined;
  return { microBatches: taken, state: encodeState(data.state()) };
}

/** What a promise comes to, or nothing when the signal is aborted before. */
function untilAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const end = () => resolve(undefined);
    signal.addEventListener("abort", end, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}

/** Micro-batches whose making takes so long that it is told. */
const DROPPED_TOLD = 10_000;

/** The data of a run. */
export interface RunData extends StepData {
  /** Held-out micro-batches; they are copied like others, as they may share buffers with the data. */
  readonly heldOut: readonly Batch[];
  /** Reports micro-batches that do not come in time. */
  readonly watch: DataWatch;
}

/**
 * Opens the data of a run.
 *
 * @throws {TypeError} when a micro-batch that is held out is not what the model reads.
 */
export function openRunData(
  { data, evaluation, resume, dropLast = false, signal }: TrainOptions,
  { model, halves, microBatches, steps, announce }: PreparedRun,
): RunData {
  const check = batchCheck(model, halves);
  const heldOut = (evaluation?.batches ?? []).map((batch, i) =>
    takeBatch(batch, `evaluation.batches[${i}]`, check)
  );
  const { data: state } = (resume?.config?.["progress"] ?? {}) as { readonly data?: DataState };
  const done = resume?.step ?? 0;
  const watch = new DataWatch(announce);
  const how = { microBatches, done, steps, state, dropLast, check, signal, watch };
  if (!isSource(data) && done * microBatches >= DROPPED_TOLD) {
    announce(
      `The data has no from: ${
        done * microBatches
      } micro-batches are made and dropped before step ${done + 1}.`,
    );
  }
  return Object.assign(openStepData(data, how), { heldOut, watch });
}
