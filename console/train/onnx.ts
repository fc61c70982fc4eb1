/**
 * The model of an ONNX file in a checkpoint.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename } from "node:path";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import type { TensorSource } from "../../actors/checkpoints/tensors.ts";
import { readTensor } from "../../actors/checkpoints/tensors.ts";
import { suggest } from "../../actors/options/option.ts";
import type { ModelComponent } from "../../actors/registry/component.ts";
import {
  type Batch,
  fromOnnx,
  type HostArray,
  onnxWithWeights,
  type TensorSpec,
} from "../../kernels/mod.ts";
import { describeOnnx, type OnnxDescription } from "../../kernels/internal.ts";
import { modelFields } from "../../kernels/internal.ts";
import { checkFile } from "../command.ts";
import { quoted } from "../terminal.ts";
import { dimensionsOf, type GivenTrainFlags, type TrainFlags } from "./flags.ts";

/** What data calls that which a loss compares with, where nobody says it. */
const LABELS = ["label", "labels", "targets"];

/** What a label is called where nobody says it. */
const LABEL = LABELS[0]!;

/** Inputs of encoders that data may leave out: what stands for each element, by its place in its row. */
const NEUTRAL: Readonly<Record<string, (column: number) => number>> = {
  attention_mask: () => 1,
  token_type_ids: () => 0,
  position_ids: (column) => column,
};

/**
 * The fields of a model from those of the data: by name; of a label that nobody named also `labels`
 * or `targets`; an attention mask of ones, one type of tokens and their positions where data has
 * none; and the one input that is left from the one field that is left.
 *
 * @param specs what the model reads.
 * @param label which of them is the label.
 * @returns the fields that were found; where one lacks all there is, to be refused.
 */
function onnxFields(specs: readonly TensorSpec[], label: string, batch: Batch): Batch {
  const from = new Map<string, string>();
  for (const { name } of specs) {
    const known = name === label && label === LABEL ? LABELS : [name];
    const found = known.find((one) => batch[one] !== undefined);
    if (found !== undefined) from.set(name, found);
  }
  const lacking = specs.filter(({ name }) => !from.has(name) && name !== label);
  const inputs = lacking.filter(({ name }) => !Object.hasOwn(NEUTRAL, name));
  const taken = new Set([...from.values(), ...LABELS]);
  const fields = Object.keys(batch).filter((name) => !taken.has(name));
  if (inputs.length === 1 && fields.length === 1) from.set(inputs[0]!.name, fields[0]!);
  const found = specs.flatMap((spec) => {
    const { name } = spec, field = from.get(name);
    if (field !== undefined) return [[name, ofType(spec, batch[field]!)] as const];
    return name !== label && Object.hasOwn(NEUTRAL, name) ? [[name, neutral(spec)] as const] : [];
  });
  const made = Object.fromEntries(found);
  return found.length === specs.length ? made : { ...batch, ...made };
}

/** The arrays of what such a model reads: ids are narrowed. */
const ARRAYS = { f32: Float32Array, i32: Int32Array, bool: Uint8Array } as const;

/** Whole numbers as another type holds them; what cannot be meant stays as it is. */
function ofType({ dtype, shape }: TensorSpec, values: HostArray): HostArray {
  const isWhole = values instanceof Int32Array || values instanceof BigInt64Array ||
    values instanceof Uint8Array;
  const array = ARRAYS[dtype as keyof typeof ARRAYS];
  const isRead = isWhole && array !== undefined && values.length === sizeOf(shape);
  return isRead ? array.from(Array.from<number | bigint, number>(values, Number)) : values;
}

function neutral(spec: TensorSpec): HostArray {
  const { name, shape } = spec, row = shape.at(-1) ?? 1, at = NEUTRAL[name]!;
  return ofType(spec, Int32Array.from({ length: sizeOf(shape) }, (_, i) => at(i % row)));
}

const sizeOf = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);

/** A file that was read: once, so that what was hashed is what is trained. */
export interface OnnxFile extends OnnxDescription {
  /** Where it lay, as it was named. */
  readonly path: string;
  /** What the model is called: the name of the file, as a folder may have it. */
  readonly name: string;
  /** `sha256-` and the hash of its bytes, in base64. */
  readonly integrity: string;
  /** Its bytes. */
  readonly content: Uint8Array;
}

/** No message of protobuf has more. */
const BYTES_MAX = 2 ** 31 - 1;

/** Whether a value of `--model` names such a file, and no module. */
export const isOnnxFile = (model: string | undefined): boolean => /\.onnx$/i.test(model ?? "");

/** Refuses such a file where costs of layers are known by their names, which in each file are others. */
export function refuseOnnxFile(cannot: string, model: string): void {
  if (!isOnnxFile(model)) return;
  throw new TypeError(
    `${cannot}: --model must be one that a part builds, received the ONNX file ${quoted(model)}`,
  );
}

/**
 * Reads such a file.
 *
 * @throws {TypeError} {@linkcode RangeError} when it cannot be read, or is none.
 */
export function readOnnxFile(path: string): OnnxFile {
  checkFile("model", path, BYTES_MAX);
  const content = Deno.readFileSync(path);
  const integrity = `sha256-${createHash("sha256").update(content).digest("base64")}`;
  const stem = basename(path).replace(/\.onnx$/i, "");
  const name = stem.replace(/[^\w.-]/g, "_").replace(/^\W+/, "").slice(0, 64) || "model";
  return { path, name, integrity, content, ...describeOnnx(content) };
}

/** What is said of an axis of an input that a flag counts. */
interface Counted {
  readonly flag: "micro-batch-size" | "seq";
  readonly input: string;
  readonly axis: number;
  readonly size: number | string;
}

/** The axes that flags count: the first of all inputs is that of samples, the second of ids that of tokens. */
const countedAxes = ({ inputs }: OnnxFile): Counted[] =>
  inputs.flatMap(({ name: input, dtype, shape }) => [
    ...shape.slice(0, 1).map((size) => ({
      flag: "micro-batch-size" as const,
      input,
      axis: 0,
      size,
    })),
    ...shape.length === 2 && dtype !== "f32"
      ? [{ flag: "seq" as const, input, axis: 1, size: shape[1]! }]
      : [],
  ]);

/**
 * The flags that the axes of the inputs say.
 *
 * @param given the flags that were typed.
 * @throws {RangeError} when one was typed that says otherwise.
 */
export function sizesOfOnnx(
  file: OnnxFile,
  given: GivenTrainFlags,
): Pick<GivenTrainFlags, "micro-batch-size" | "seq"> {
  const dimensions = dimensionsOf(given.dimensions), sizes: Record<string, number> = {};
  for (const { flag, input, axis, size: said } of countedAxes(file)) {
    const size = typeof said === "number" ? said : dimensions[said], typed = given[flag] ?? size;
    if (size === undefined || sizes[flag] !== undefined) continue;
    if (typed !== size) {
      const of = typeof said === "number" ? "" : ` with --dimensions ${said}=${size}`;
      throw new RangeError(
        `Cannot use --${flag}: it must be ${size}, the size of axis ${axis} of ${
          quoted(input)
        } in ${quoted(file.path)}${of}, received ${typed}`,
      );
    }
    sizes[flag] = size;
  }
  return sizes;
}

/** The sizes of axes that have names: those that were given, and of the others those that flags count. */
function dimensionsOfRun(
  file: OnnxFile,
  flags: Required<Pick<GivenTrainFlags, "micro-batch-size" | "seq">> & GivenTrainFlags,
): Readonly<Record<string, number>> {
  const counted = countedAxes(file).filter(({ size }) => typeof size === "string");
  return {
    ...Object.fromEntries(counted.map(({ flag, size }) => [size, flags[flag]])),
    ...dimensionsOf(flags.dimensions),
  };
}

/**
 * The part that a file is, with what the flags say of its training.
 *
 * @throws {TypeError} {@linkcode RangeError} when they leave something open, or name what is not there.
 */
export function onnxModel(file: OnnxFile, flags: TrainFlags): ModelComponent {
  const { content, name } = file, { loss, output, label = LABEL } = flags;
  if (loss === undefined) {
    throw new TypeError(
      `Cannot train ${quoted(file.path)}: --loss must be cross-entropy or mse, received none`,
    );
  }
  return {
    name,
    version: "1",
    build: ({ seq }) => {
      const dimensions = dimensionsOfRun(file, { ...flags, seq }),
        frozen = frozenOf(file, flags.freeze);
      const model = fromOnnx(content, { loss, label, dimensions, frozen, ...output && { output } });
      const specs = modelFields(model);
      return {
        ...model,
        name,
        config: { architecture: "onnx", loss },
        fieldsOf: (batch) => onnxFields(specs, label, batch),
        onnx: (weights) => onnxWithWeights(content, weights),
      };
    },
  };
}

/** The initializers that a list names; `NAME*` stands for all that begin so. */
function frozenOf({ path, initializers }: OnnxFile, list = ""): string[] {
  return list.split(",").filter(Boolean).flatMap((one) => {
    const isPrefix = one.endsWith("*"), begin = one.slice(0, -1);
    const found = initializers.filter((name) => isPrefix ? name.startsWith(begin) : name === one);
    if (found.length > 0) return found;
    throw new RangeError(
      `Cannot use --freeze: each must be an initializer of ${quoted(path)}, received ${
        quoted(one)
      }${suggest(one, initializers)}`,
    );
  });
}

/**
 * What makes the bytes of a file with the weights of a checkpoint.
 *
 * @param path the file that its run trained, as the user names it: no file opens another.
 * @throws {TypeError} when none is named, or it cannot be read.
 * @throws {RangeError} when it is another one.
 */
export function trainedOnnx(
  { path: from, config, state: { weights } }: Checkpoint<TensorSource>,
  path: string | undefined,
): () => Uint8Array {
  const cannot = `Cannot export ${from}: --model must name the ONNX file that its run trained`;
  const { model } = (config.parts ?? {}) as { model?: { name?: unknown; integrity?: unknown } };
  const { name, integrity } = model ?? {};
  if (path === undefined) {
    throw new TypeError(`${cannot}, ${quoted(name)}, as no file opens another, received none`);
  }
  if (!isOnnxFile(path)) throw new TypeError(`${cannot}, received ${quoted(path)}`);
  const file = readOnnxFile(path);
  if (file.integrity !== integrity) {
    throw new RangeError(
      `${cannot}, with hash ${quoted(integrity)}, received ${quoted(path)} with ${file.integrity}`,
    );
  }
  return () =>
    onnxWithWeights(
      file.content,
      new Map([...weights].map(([name, source]) => [name, readTensor(source)])),
    );
}
