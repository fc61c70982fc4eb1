/**
 * The data of a run. Its first micro-batch is checked before the run starts.
 *
 * @module
 */

import { type Batches, type Data, isIterable, isSource } from "../options/model_definition.ts";
import type { TrainEvent } from "../options/train_events.ts";
import type { Batch } from "../../kernels/mod.ts";
import {
  assertInput,
  type BatchCheck,
  batchCheck,
  nameError,
  nameErrors,
  refusal,
} from "../../kernels/internal.ts";
import { jsonOf } from "../checkpoints/format.ts";
import type { StepRequest } from "../pipeline/step.ts";
import type { PreparedRun } from "./events.ts";

/** State of the data after some micro-batches. */
interface DataState {
  /** Number of micro-batches taken. */
  readonly microBatches: number;
  /** Result of the data's `state()` then. */
  readonly state: unknown;
}

/** Maximum number of characters of a state as JSON. */
const STATE_MAX = 2 ** 16;

/**
 * Returns a state as a checkpoint restores it, so that a resumed run gets an equal one.
 *
 * @throws {TypeError} when JSON cannot represent it, or needs too many characters.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.deepEqual(encodeState({ shard: 3, left: undefined }), { shard: 3 });
 * assert.throws(() => encodeState(() => 1), /must be representable as JSON/);
 * ```
 */
export function encodeState(state: unknown): unknown {
  const cannot = "keep the state of the data", must = "it must be representable as JSON";
  const text = jsonOf(cannot, must, state), isFit = text.length <= STATE_MAX;
  assertInput(isFit, cannot, `${must} in ${STATE_MAX} characters`, text.length, TypeError);
  return JSON.parse(text);
}

/** Returns whether a value can be the state of data in a checkpoint. */
export function isDataState(value: unknown): value is DataState {
  const { microBatches } = Object(value) as Partial<DataState>;
  return Number.isSafeInteger(microBatches) && microBatches! >= 0 && "state" in Object(value);
}

type WaitEvent = Extract<TrainEvent, { type: "wait" }>;

/** Time without a micro-batch after which the wait is reported. */
const WAIT_SECONDS = 30;

/** Reports each micro-batch that does not come in time, once. */
export class DataWatch {
  /** The micro-batch that the data was asked for, and the ticks since then. */
  #asked: { readonly step: number; readonly microBatch: number; seconds: number } | undefined;
  /** One timer for the whole run, as micro-batches are many. */
  #timer: ReturnType<typeof setInterval> | undefined;
  #report = (_: WaitEvent): void => {};

  /** @param announce receives the reports as text. */
  constructor(private readonly announce: (line: string) => void) {}

  /** Notes that the data was asked for a micro-batch. */
  ask(step: number, microBatch: number): void {
    this.#asked = { step, microBatch, seconds: 0 };
    this.#timer ??= setInterval(() => this.#look(), 1000);
  }

  /** Notes that the data has answered. @returns whether it was asked. */
  answered(): boolean {
    const isAsked = this.#asked !== undefined;
    this.#asked = undefined;
    return isAsked;
  }

  /** Stops watching. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#asked = undefined;
  }

  #look(): void {
    // An abandoned run must not keep the program alive.
    if (!this.#asked) return this.close();
    if (++this.#asked.seconds !== WAIT_SECONDS + 1) return;
    const { step, microBatch } = this.#asked;
    const what = `step ${step} waits for its micro-batch ${microBatch}`;
    this.announce(`The data has not answered for ${WAIT_SECONDS} s: ${what}`);
    this.#report({ type: "wait", step, microBatch });
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

/** Adds the requested micro-batch to an error of the data, unless the error names it. */
export function nameDataError(cause: unknown, step: number, microBatch: number): unknown {
  const name = `micro-batch ${microBatch} of step ${step}`;
  return String(cause).includes(name) ? cause : nameError(`Cannot take ${name}`, cause);
}

/** Arrays that devices read. */
const ARRAYS = [Float32Array, Float16Array, Int32Array, BigInt64Array, Uint8Array] as const;

/**
 * Returns a copy of a micro-batch, without fields that messages cannot carry.
 *
 * It is copied before it is checked, so that the checked values are the ones that train.
 *
 * @param name Name of the micro-batch in refusals.
 * @throws {TypeError} when it is not a record, or the model cannot read it.
 */
function takeBatch(batch: Batch, name: string, check: BatchCheck): Batch {
  if (typeof batch !== "object" || batch === null) {
    const received = String(batch).slice(0, 100);
    throw refusal(`train on ${name}`, "it must be a record of typed arrays", received, TypeError);
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
  // A detached array is checked as it is: it has no elements.
  if (!isTypedArray(value) || value.length === 0) return value;
  return Plain ? new Plain(value as never) : value.slice();
}

const isTypedArray = (value: unknown): value is Int8Array =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const isCarried = (value: unknown) =>
  isTypedArray(value) || ["number", "string", "boolean", "bigint"].includes(typeof value);

/** The data of a run. */
export class RunData {
  /** Held-out micro-batches; copied, because they may share buffers with the data. */
  readonly heldOut: readonly Batch[];
  readonly #steps: AsyncGenerator<Step, void>;
  #step: number;
  #state: DataState | undefined;
  #drawn: Promise<IteratorResult<Step, void> | undefined> | undefined;
  /** True while the data has not answered; the watch may have asked other data since. */
  #isAsked = false;
  #isClosed = false;

  /**
   * @param watch reports micro-batches that do not come in time; shared by several data sources that
   *   are asked one at a time.
   * @throws {TypeError} when a held-out micro-batch does not fit the model.
   */
  constructor(
    private readonly prepared: PreparedRun,
    readonly watch: DataWatch = new DataWatch(prepared.announce),
  ) {
    const { data, evaluation, resume, model, halves, microBatches } = prepared;
    const { data: kept } = (resume?.config?.["progress"] ?? {}) as { readonly data?: DataState };
    const check = batchCheck(model, halves), done = resume?.step ?? 0;
    this.heldOut = (evaluation?.batches ?? []).map((batch, i) =>
      takeBatch(batch, `evaluation.batches[${i}]`, check)
    );
    const dropped = done * microBatches;
    this.#steps = takeSteps(prepared, dropped, kept, check, watch);
    this.#step = done;
    this.#state = kept;
    const when = `before step ${done + 1}`;
    if (isSource(data) || dropped < DROPPED_TOLD) return;
    prepared.announce(
      `The data has no from: ${dropped} micro-batches are made and dropped ${when}.`,
    );
  }

  /** State of the data after the steps that were asked for, as a checkpoint keeps it. */
  get kept(): { readonly data?: DataState } {
    return this.#state === undefined ? {} : { data: this.#state };
  }

  /** Begins to draw the next step, if there is one, while the current one is trained on. */
  drawAhead(): void {
    const { steps, signal } = this.prepared;
    if (this.#drawn || this.#isClosed || this.#step >= steps || signal?.aborted) return;
    this.#drawn = this.#draw();
    // An error is thrown when the step is taken.
    this.#drawn.catch(() => {});
  }

  /** Draws the next step in advance, if there is one, so that its errors are thrown now. */
  async begin(): Promise<void> {
    this.drawAhead();
    // Until the next step, nothing is asked for: the timer would keep an abandoned run alive.
    if (await this.#drawn) this.watch.close();
  }

  /** Draws the micro-batches of a step; undefined if the signal is aborted first. */
  #draw(): Promise<IteratorResult<Step, void> | undefined> {
    this.#isAsked = true;
    const step = this.#steps.next().finally(() => this.#isAsked = false);
    return untilAborted(step, this.prepared.signal);
  }

  /**
   * Returns the micro-batches of the next step; undefined if a smaller last step is left out, or the
   * signal is aborted first.
   *
   * @throws {RangeError} when the data has ended; otherwise as {@linkcode takeSteps}.
   */
  async next(): Promise<Pick<StepRequest, "microBatches" | "jobs"> | undefined> {
    this.#step++;
    const taken = await (this.#drawn ?? this.#draw());
    this.#drawn = undefined;
    if (!taken) return undefined;
    if (taken.done) {
      const must = "the data must have micro-batches for every step";
      throw refusal(`run step ${this.#step}`, must, "too few");
    }
    // A step that is left out does not change the state of the data.
    if (taken.value.batches.length === 0) return undefined;
    this.#state = taken.value.state;
    return { microBatches: taken.value.batches };
  }

  /** Closes the iterator, once. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const closing = this.#steps.return();
    this.watch.close();
    // Data that has not answered yet may never answer.
    if (this.#isAsked) closing.catch(() => {});
    else await closing;
  }
}

/** The micro-batches of a step, and the state of the data after them. */
interface Step {
  readonly batches: readonly Batch[];
  readonly state: DataState | undefined;
}

/**
 * Yields the micro-batches of each remaining step; the last step can have fewer, or none if the rest
 * is dropped.
 *
 * They are copied when they arrive and then checked. The data can reuse its buffers immediately,
 * while the copies wait for the rest of their step, are in flight, or are kept for a repeated step.
 *
 * @param first number of the first micro-batch that is needed.
 * @param kept state of the data there, in a checkpoint.
 * @throws {TypeError} with its number when the model cannot read a micro-batch.
 * @throws {Error} of the data, with the number of the requested micro-batch.
 */
async function* takeSteps(
  { data, microBatches, dropLast }: PreparedRun,
  first: number,
  kept: DataState | undefined,
  check: BatchCheck,
  watch: DataWatch,
): AsyncGenerator<Step, void> {
  const { source, skipped, taken } = beginAt(data, first, kept);
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
    watch.close();
  }
  if (batches.length === 0) return;
  // An empty step reports that the rest was dropped.
  yield dropLast ? { batches: [], state: undefined } : step();
}

/** Opens data at the first needed micro-batch; returns the numbers taken before and to skip. */
function beginAt(data: Data, first: number, known: DataState | undefined) {
  // An iterable continues from its current position.
  if (!isSource(data) || (first === 0 && isIterable(data))) {
    return { source: data as Batches, skipped: first, taken: first };
  }
  const { microBatches: taken = first, state: kept } = (data.state && known) ?? {};
  const cannot = `begin the data at micro-batch ${taken}`;
  const source: Batches = nameErrors(`Cannot ${cannot}`, () => data.from(taken, kept));
  const must = "from must return an iterable, or an async one";
  assertInput(isIterable(source), cannot, must, typeof source, TypeError);
  return { source, skipped: 0, taken };
}

/** Returns the state of data for a checkpoint after `taken` micro-batches. */
function stateOf(data: Data, taken: number): DataState | undefined {
  if (!isSource(data) || !data.state) return undefined;
  return { microBatches: taken, state: encodeState(data.state()) };
}

/** Returns the value of a promise, or undefined if the signal is aborted first. */
function untilAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const end = () => resolve(undefined);
    signal.addEventListener("abort", end, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", end));
  });
}

/** Minimum number of dropped micro-batches that is announced. */
const DROPPED_TOLD = 10_000;
