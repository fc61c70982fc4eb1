/**
 * Trains the model of an ONNX file, and exports it with the weights of a checkpoint.
 *
 * @module
 */

import { type ModelComponent } from "../../actors/options/model_definition.ts";
import { createHash } from "node:crypto";
import { basename } from "node:path";
import type { Checkpoint } from "../../actors/checkpoints/format.ts";
import type { TensorSource } from "../../actors/checkpoints/tensors.ts";
import { readTensors } from "../../actors/checkpoints/tensors.ts";
import { suggest } from "../../actors/options/option.ts";
import {
  type Batch,
  fromOnnx,
  type HostArray,
  onnxWithWeights,
  type TensorSpec,
} from "../../kernels/mod.ts";
import { assertInput, describeOnnx, modelFields } from "../../kernels/internal.ts";
import { checkFile } from "../command.ts";
import { ensure, quoted } from "../terminal.ts";
import { dimensionsOf, type GivenTrainFlags, type TrainFlags } from "./flags.ts";

/** Default names of the label in data. */
const LABELS = ["label", "labels", "targets"];

/** Default name of the label. */
const LABEL = LABELS[0]!;

/** Default elements of encoder inputs that data may omit, by column. */
const NEUTRAL: Readonly<Record<string, (column: number) => number>> = {
  attention_mask: () => 1,
  token_type_ids: () => 0,
  position_ids: (column) => column,
};

/**
 * Maps fields of the data to inputs of the model by name. A label without a given name may also be
 * `labels` or `targets`. A missing attention mask is ones, missing token types are one type, and
 * missing positions count up. A single remaining input takes the single remaining field.
 *
 * @param specs inputs of the model, including the label.
 * @param label name of the label.
 * @returns the mapped fields; all fields if one is missing, so that the caller refuses them.
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

/** Array types of model inputs. Ids are narrowed. */
const ARRAYS = { f32: Float32Array, i32: Int32Array, bool: Uint8Array } as const;

/** Converts integers to the type of an input. Returns values that do not fit unchanged. */
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

/** An ONNX file, read once so that the hash is of the trained bytes. */
export type OnnxFile = ReturnType<typeof readOnnxFile>;

/** Largest size of a protobuf message, in bytes. */
const BYTES_MAX = 2 ** 31 - 1;

/** Returns whether a value of `--model` names an ONNX file, not a module. */
export const isOnnxFile = (model: string | undefined): boolean => /\.onnx$/i.test(model ?? "");

/** Refuses an ONNX file where costs are given by layer name, because names differ in each file. */
export function refuseOnnxFile(cannot: string, model: string): void {
  const must = "--model must be one that a part builds";
  ensure(!isOnnxFile(model), cannot, must, `the ONNX file ${quoted(model)}`);
}

/**
 * Reads an ONNX file.
 *
 * @throws {TypeError} {@linkcode RangeError} when it cannot be read or is not an ONNX file.
 */
export function readOnnxFile(path: string) {
  checkFile("model", path, BYTES_MAX);
  const content = Deno.readFileSync(path);
  const integrity = `sha256-${createHash("sha256").update(content).digest("base64")}`;
  const stem = basename(path).replace(/\.onnx$/i, "");
  // Valid as the name of a folder, too.
  const name = stem.replace(/[^\w.-]/g, "_").replace(/^\W+/, "").slice(0, 64) || "model";
  return { path, name, integrity, content, ...describeOnnx(content) };
}

/** Returns the axes set by flags: samples (first axis of inputs) and tokens (second axis of ids). */
const countedAxes = ({ inputs }: OnnxFile) =>
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
 * Returns the flags that follow from the axes of the inputs.
 *
 * @param given flags given by the user.
 * @throws {RangeError} when a given flag differs.
 */
export function sizesOfOnnx(
  file: OnnxFile,
  given: GivenTrainFlags,
): Pick<GivenTrainFlags, "micro-batch-size" | "seq"> {
  const dimensions = dimensionsOf(given.dimensions), sizes: Record<string, number> = {};
  for (const { flag, input, axis, size: said } of countedAxes(file)) {
    const size = typeof said === "number" ? said : dimensions[said], typed = given[flag] ?? size;
    if (size === undefined || sizes[flag] !== undefined) continue;
    const of = typeof said === "number" ? "" : ` with --dimensions ${said}=${size}`;
    const what = `the size of axis ${axis} of ${quoted(input)} in ${quoted(file.path)}${of}`;
    assertInput(typed === size, `use --${flag}`, `it must be ${size}, ${what}`, typed);
    sizes[flag] = size;
  }
  return sizes;
}

/** Returns the sizes of named axes: given sizes first, then sizes set by flags. */
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
 * Returns the model component of an ONNX file, with the training settings of the flags.
 *
 * @throws {TypeError} {@linkcode RangeError} when a flag is missing, or names something that the file lacks.
 */
export function onnxModel(file: OnnxFile, flags: TrainFlags): ModelComponent {
  const { content, name } = file, { loss, output, label = LABEL, lora, adapter } = flags;
  const cannot = `train ${quoted(file.path)}`, must = "--loss must be cross-entropy or mse";
  ensure(loss, cannot, must);
  const none = "--lora and --adapter must be left out, as a trained ONNX file has no adapter";
  assertInput((lora ?? adapter) === undefined, cannot, none, lora ?? adapter);
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

/** Returns the initializers that a list names. `NAME*` matches all names with that prefix. */
function frozenOf({ path, initializers }: OnnxFile, list = ""): string[] {
  return list.split(",").filter(Boolean).flatMap((one) => {
    const isPrefix = one.endsWith("*"), begin = one.slice(0, -1);
    const found = initializers.filter((name) => isPrefix ? name.startsWith(begin) : name === one);
    const must = `each must be an initializer of ${quoted(path)}`;
    const received = `${quoted(one)}${suggest(one, initializers)}`;
    ensure(found.length > 0, "use --freeze", must, received, RangeError);
    return found;
  });
}

/**
 * Returns a function that makes the bytes of an ONNX file with the weights of a checkpoint.
 *
 * @param path the trained file. The user names it, because a checkpoint never opens another file.
 * @throws {TypeError} when no file is named, or it cannot be read.
 * @throws {RangeError} when it is not the trained file.
 */
export function trainedOnnx(
  { path: from, config, state: { weights } }: Checkpoint<TensorSource>,
  path: string | undefined,
): () => Uint8Array {
  const cannot = `export ${from}`, must = "--model must name the ONNX file that its run trained";
  const { model } = (config.parts ?? {}) as { model?: { name?: unknown; integrity?: unknown } };
  const { name, integrity } = model ?? {};
  const why = `${must}, ${quoted(name)}, because a file may not open another`;
  ensure(path !== undefined, cannot, why);
  ensure(isOnnxFile(path), cannot, must, quoted(path));
  const file = readOnnxFile(path), received = `${quoted(path)} with ${file.integrity}`;
  const hashed = `${must}, with hash ${quoted(integrity)}`;
  ensure(file.integrity === integrity, cannot, hashed, received, RangeError);
  return () => onnxWithWeights(file.content, readTensors(weights));
}
