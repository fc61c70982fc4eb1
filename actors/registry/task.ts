/**
 * Tasks: a model built for its data.
 *
 * @module
 */

import {
  type Batches,
  buildModel,
  type BuiltModel,
  checkDataSizes,
  type Data,
  isIterable,
  isSource,
  type ModelComponent,
  type ModelOptions,
} from "../options/model_definition.ts";
import { type Batch, type DeviceChoice, openDevice, openPredictor } from "../../kernels/mod.ts";
import { assertInput, fieldProblem, hasDropout, modelFields } from "../../kernels/internal.ts";
import { anything, callback, check, listOf } from "../options/option.ts";
import { DataWatch, nameDataError } from "../run/data.ts";
import { type DataComponent, type DataOptions } from "./component.ts";

/** Options of a model and its data. */
export interface TaskOptions extends Omit<ModelOptions, "data">, DataOptions {}

/** A model and its data. */
export interface Task {
  /** The model. */
  readonly model: BuiltModel;
  /** Micro-batches in training order. */
  readonly data: Data;
  /** Returns held-out micro-batches; undefined if the data has none. */
  readonly heldOut: (() => readonly Batch[]) | undefined;
  /** Unit of predictions: tokens for data with a vocabulary. */
  readonly unit: "tokens" | "samples";
  /** Model and tokenizer, for checkpoints. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Returns an ONNX file with trained weights; undefined if the model does not come from one. */
  readonly onnx: BuiltModel["onnx"];
  /** Returns a report of the trained model; undefined if the model has none. */
  show(
    weights: ReadonlyMap<string, Float32Array>,
    device: DeviceChoice,
  ): Promise<string | undefined>;
}

/**
 * Opens data and builds a model for it.
 *
 * @throws {RangeError} {@linkcode TypeError} (as a rejection) when they do not fit each other; the
 * error names both.
 *
 * @example
 * ```ts
 * import { defineData, defineModel, openTask } from "@troupe/troupe/actors";
 * import { mlp } from "@troupe/troupe/kernels";
 * import assert from "node:assert/strict";
 *
 * const model = defineModel({
 *   name: "signs",
 *   version: "1",
 *   build: ({ hidden, microBatch }) =>
 *     mlp({ inputs: 1, hidden, layers: 1, classes: 2 }, microBatch),
 * });
 * const data = defineData({
 *   name: "bytes",
 *   version: "1",
 *   open: () => ({ batches: [{ ids: Int32Array.of(1, 2) }] }),
 * });
 * const sizes = { layers: 1, hidden: 4, heads: 1, seq: 2, vocab: undefined, tie: false };
 * const cut = { microBatch: 2, microBatches: 1, replicas: 1, steps: 1, seed: 1, file: undefined };
 * const options = { ...sizes, ...cut, tokenizer: undefined, announce: () => {} };
 * await assert.rejects(openTask(model, data, options), {
 *   message: "Cannot train signs on bytes: its micro-batches must have the field " +
 *     '"features", Float32Array of [2,1] (2 elements), received ids',
 * });
 * ```
 */
export async function openTask(
  model: ModelComponent,
  data: DataComponent,
  options: TaskOptions,
): Promise<Task> {
  const train = `train ${model.name} on ${data.name}`, cannot = `Cannot ${train}`;
  const opened = await data.open({ ...options, arePairs: model.readsPairs }),
    { sizes = {}, heldOut, tokenizer } = opened;
  const name = "heldOut of the data, such as (microBatch) => [batch],";
  if (heldOut !== undefined) check(callback, heldOut, { cannot, name });
  checkDataSizes(train, model, sizes);
  const built = await buildModel(model, { ...options, data: sizes });
  const isModel = Array.isArray(built?.layers), { dropout } = options;
  assertInput(isModel, train, "build must return a model with layers", "none", TypeError);
  const must = "dropout must be 0 since no layer of the model uses it";
  assertInput(!dropout || hasDropout(built), train, must, dropout);
  const { fieldsOf, onnx } = built;
  const read = fieldsOf ? mapData(opened.batches, fieldsOf) : opened.batches;
  const batches = await checkedBatches(read, built, cannot, options);
  return {
    model: built,
    data: batches,
    heldOut: heldOut && (() => {
      const batches = heldOut(options.microBatch);
      check(listOf(anything), batches, { cannot, name: "the result of heldOut of the data" });
      return fieldsOf ? batches.map((batch) => fieldsOf(batch)) : batches;
    }),
    unit: sizes.vocab === undefined ? "samples" : "tokens",
    config: {
      architecture: model.name,
      ...built.config,
      ...sizes.vocab !== undefined && { tokenizer: tokenizer?.name ?? "none" },
    },
    onnx,
    async show(weights, device) {
      using stack = new DisposableStack();
      return await built.show?.({
        ...{ weights, device, data: opened, seed: options.seed },
        predict: async (layers, ties) => {
          const opened = await openDevice(device.name, device);
          stack.defer(() => opened.close());
          return await openPredictor(opened, layers, weights, ties);
        },
      });
    },
  };
}

/** Checks that the first micro-batch has the fields of the model; returns all micro-batches. */
async function checkedBatches(
  batches: Data,
  model: BuiltModel,
  cannot: string,
  { announce, lengths }: Pick<DataOptions, "announce" | "lengths">,
): Promise<Data> {
  const source = batches !== undefined && isSource(batches) ? batches : undefined;
  const iterator = iteratorOf(source ? source.from(0) : batches);
  if (!iterator) {
    throw new TypeError(`${cannot}: the data must have an iterable of micro-batches as "batches"`);
  }
  const watch = new DataWatch(announce);
  watch.ask(1, 0);
  const first = await Promise.try(() => iterator.next()).catch((cause) => {
    throw nameDataError(cause, 1, 0);
  }).finally(() => watch.close());
  // A source can start again, so its first iterator is closed.
  if (source) await iterator.return?.();
  // The run checks samples of any length before it starts.
  for (const field of first.done || lengths ? [] : modelFields(model)) {
    const problem = fieldProblem(field, first.value);
    if (problem !== undefined) throw new RangeError(`${cannot}: its micro-batches ${problem}`);
  }
  return source ?? resume(first, iterator);
}

type AnyIterator = Iterator<Batch> | AsyncIterator<Batch>;

function iteratorOf(batches: Data | undefined): AnyIterator | undefined {
  const any = batches as Partial<Iterable<Batch> & AsyncIterable<Batch>> | undefined;
  return any?.[Symbol.asyncIterator]?.() ?? any?.[Symbol.iterator]?.();
}

/** Yields the first result and the rest of an iterator. */
async function* resume(
  first: IteratorResult<Batch>,
  iterator: AnyIterator,
): AsyncGenerator<Batch, void> {
  try {
    for (let next = first; !next.done; next = await iterator.next()) yield next.value;
  } finally {
    await iterator.return?.();
  }
}

/** Converts each micro-batch; invalid data is returned for a later check. */
export function mapData(data: Data, convert: (batch: Batch) => Batch): Data {
  if (data === undefined || !isSource(data)) return isIterable(data) ? mapped(data, convert) : data;
  return {
    from: (microBatch, state) => mapped(data.from(microBatch, state), convert),
    ...data.state && { state: () => data.state!() },
  };
}

async function* mapped(batches: Batches, convert: (batch: Batch) => Batch): AsyncGenerator<Batch> {
  for await (const batch of batches) yield convert(batch);
}
