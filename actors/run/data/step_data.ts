/**
 * The data of a run as steps take it.
 *
 * @module
 */

import { type Batch, type BatchCheck, nameError } from "../../../kernels/mod.ts";
import { type Batches, type Data, isIterable, isSource } from "./data.ts";
import { type DataState, encodeState } from "./data_state.ts";
import { takeBatch } from "./take_batch.ts";

/** What decides which micro-batches a run takes. */
export interface StepDataOptions {
  /** Micro-batches of a step, all data-parallel replicas together. */
  readonly microBatches: number;
  /** Steps that are done: they have had theirs. */
  readonly done: number;
  /** What a checkpoint says of the data at the end of them. */
  readonly state?: DataState | undefined;
  /** Whether a last step that has fewer is left out. */
  readonly dropLast: boolean;
  /** Says what is wrong with a micro-batch. */
  readonly check: BatchCheck;
  /** Ends the wait for one. */
  readonly signal?: AbortSignal | undefined;
}

/** The micro-batches of a run. */
export interface StepData {
  /**
   * The micro-batches of the next step; undefined where a last, smaller one is left out, or the run
   * was told to end meanwhile.
   *
   * @throws {RangeError} when there are none; as {@linkcode takeSteps}.
   */
  next(): Promise<readonly Batch[] | undefined>;
  /** Draws the next step before it is asked for, so that what is wrong with it is told now. */
  begin(): Promise<void>;
  /** What a checkpoint says of the data after the steps that were asked for. */
  readonly state: DataState | undefined;
  /**
   * Closes the iterator, the first time that it is called.
   *
   * @throws what it throws.
   */
  close(): Promise<void>;
  /** The same. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Opens the data of a run. */
export function openStepData(data: Data, options: StepDataOptions): StepData {
  const steps = takeSteps(data, options), { signal } = options;
  let drawn: Promise<IteratorResult<Step, void>> | undefined, isLate = false, isClosed = false;
  let { state } = options, step = options.done;
  const close = async () => {
    if (isClosed) return;
    isClosed = true;
    const closing = steps.return();
    // Whoever did not come in time may never come.
    if (isLate) closing.catch(() => {});
    else await closing;
  };
  return {
    async begin() {
      drawn = steps.next();
      isLate = await untilAborted(drawn, signal) === undefined;
    },
    async next() {
      step++;
      const taken = await untilAborted(drawn ?? steps.next(), signal);
      drawn = undefined;
      if (!taken) {
        isLate = true;
        return undefined;
      }
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
    close,
    [Symbol.asyncDispose]: close,
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
 * @throws what whoever makes them throws.
 */
async function* takeSteps(data: Data, options: StepDataOptions): AsyncGenerator<Step, void> {
  const { microBatches, done, dropLast, check } = options, first = done * microBatches;
  const { source, skipped, taken } = beginAt(data, options);
  let number = first - skipped, batches: Batch[] = [];
  const name = () =>
    `micro-batch ${number % microBatches} of step ${Math.floor(number / microBatches) + 1}`;
  const step = (): Step => ({ batches, state: stateOf(data, taken + number - first) });
  for await (const batch of source) {
    if (number >= first) batches.push(takeBatch(batch, name(), check));
    number++;
    if (batches.length < microBatches) continue;
    yield step();
    batches = [];
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
