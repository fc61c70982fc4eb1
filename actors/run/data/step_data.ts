/**
 * The data of a run as steps take it.
 *
 * @module
 */

import { type Batch, type BatchCheck, nameError } from "../../../kernels/mod.ts";
import { type Batches, type Data, isIterable, isSource } from "./data.ts";
import { type DataState, encodeState } from "./data_state.ts";
import { type DataWatch, nameDataError } from "./data_watch.ts";
import { takeBatch } from "./take_batch.ts";

/** What decides which micro-batches a run takes. */
export interface StepDataOptions {
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
export interface StepData {
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
export function openStepData(data: Data, options: StepDataOptions): StepData {
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
