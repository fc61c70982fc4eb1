/** Models exported by PyTorch, with their data and PyTorch's results. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { InferenceSession, Tensor } from "onnxruntime-web";
import type { Batch } from "../kernels/mod.ts";

/** The models. */
export const ONNX_FIXTURES = ["resnet", "resnet_fused", "bert", "gpt", "gpt_tied"] as const;

/** A model. */
export type OnnxFixture = typeof ONNX_FIXTURES[number];

/** The path of the file of a model. */
export const onnxPath = (name: OnnxFixture, file = "model.onnx"): string =>
  join(fileURLToPath(new URL("fixtures/onnx", import.meta.url)), name, file);

/** Results of PyTorch. */
export interface Expected {
  readonly config: {
    readonly microBatch: number;
    readonly microBatches: number;
    readonly steps: number;
    readonly labels?: readonly number[];
    readonly adamw: { readonly lr: number; readonly weightDecay: number };
    readonly sgd: { readonly lr: number };
  };
  /** Of the first micro-batch, with the weights of the file. */
  readonly outputs: readonly number[];
  readonly adamw: Trained;
  readonly sgd: Trained;
}

/** Results of training: losses in float64 and float32, and the outputs afterwards. */
interface Trained {
  readonly losses: readonly number[];
  readonly float32: readonly number[];
  readonly outputs: readonly number[];
}

/** Reads the results of PyTorch for a model. */
export const expectedOf = (name: OnnxFixture): Expected =>
  JSON.parse(Deno.readTextFileSync(onnxPath(name, "expected.json")));

const CONFIG = { microBatch: 4, rows: 160 };

/** The micro-batches of all steps, with the names of the file's inputs. */
export function* onnxBatches(name: OnnxFixture): Generator<Batch> {
  const rows = rowsOf(name);
  for (let at = 0; at < CONFIG.rows; at += CONFIG.microBatch) {
    yield rows(at, at + CONFIG.microBatch);
  }
}

function rowsOf(name: OnnxFixture): (from: number, to: number) => Batch {
  const read = (file: string, of: OnnxFixture) => Deno.readFileSync(onnxPath(of, file));
  const words = (file: string, of: OnnxFixture) =>
    Int32Array.from(new Uint16Array(read(file, of).buffer));
  if (name === "gpt" || name === "gpt_tied") {
    const tokens = words("tokens.bin", "gpt"),
      part = (at: number, end: number) => tokens.slice(at, end);
    return (from, to) => ({
      input_ids: part(16 * from, 16 * to),
      label: part(16 * from + 1, 16 * to + 1),
    });
  }
  const labels = expectedOf(name === "bert" ? "bert" : "resnet").config.labels!;
  const label = (from: number, to: number) => Int32Array.from(labels.slice(from, to));
  if (name === "bert") {
    const ids = words("ids.bin", "bert"), mask = Int32Array.from(read("mask.bin", "bert"));
    return (from, to) => ({
      input_ids: ids.slice(12 * from, 12 * to),
      attention_mask: mask.slice(12 * from, 12 * to),
      label: label(from, to),
    });
  }
  const pixels = Float32Array.from(read("pixels.bin", "resnet"), (byte) => byte / 256);
  return (from, to) => ({ pixels: pixels.slice(784 * from, 784 * to), label: label(from, to) });
}

/** The shapes of a micro-batch's inputs. */
const SHAPES: Readonly<Record<string, readonly number[]>> = {
  "gpt.input_ids": [4, 16],
  "gpt_tied.input_ids": [4, 16],
  "bert.input_ids": [4, 12],
  "bert.attention_mask": [4, 12],
  "resnet.pixels": [4, 1, 28, 28],
  "resnet_fused.pixels": [4, 1, 28, 28],
};

/** Loads onnxruntime-web before the tests of a file, because it opens ports that stay open. */
export const loadRuntime = (): void =>
  Deno.test.beforeAll(() => assert.rejects(InferenceSession.create(new Uint8Array())));

/** Computes the outputs of a file with onnxruntime-web alone, by their names. */
export async function runOnnx(bytes: Uint8Array, inputs: Readonly<Record<string, Tensor>>) {
  const session = await InferenceSession.create(bytes);
  try {
    return await session.run(inputs);
  } finally {
    await session.release();
  }
}

/** Computes the outputs of a file for the first micro-batch with onnxruntime-web alone. */
export async function outputsOf(name: OnnxFixture, bytes: Uint8Array): Promise<number[]> {
  const [{ label: _, ...inputs }] = [onnxBatches(name).next().value as Batch];
  const feeds = Object.entries(inputs).map(([field, values]) => {
    const data = values instanceof Int32Array ? BigInt64Array.from(values, BigInt) : values;
    return [field, new Tensor(data as Float32Array, SHAPES[`${name}.${field}`]!)] as const;
  });
  const { logits } = await runOnnx(bytes, Object.fromEntries(feeds));
  return [...logits!.data as Float32Array];
}

/** The mean cross-entropy of outputs for the labels of the first micro-batch. */
export function lossOf(name: OnnxFixture, outputs: readonly number[]): number {
  const { label } = onnxBatches(name).next().value as Batch,
    classes = outputs.length / label!.length;
  const losses = [...label as Int32Array].map((one, i) => {
    const logits = outputs.slice(i * classes, (i + 1) * classes);
    return Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0)) - logits[one]!;
  });
  return losses.reduce((sum, loss) => sum + loss) / losses.length;
}

/** The largest difference of two lists of numbers. */
export const farthest = (some: ArrayLike<number>, others: ArrayLike<number>): number =>
  some.length === others.length
    ? Math.max(...Array.from(some, (value, i) => Math.abs(value - others[i]!)))
    : NaN;
