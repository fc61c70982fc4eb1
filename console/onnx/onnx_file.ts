/**
 * The ONNX file that `--model FILE.onnx` names, and what it says of samples.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { basename } from "node:path";
import { describeOnnx, type OnnxDescription } from "../../kernels/mod.ts";
import { checkFile } from "../check_file.ts";
import { quoted } from "../escape.ts";
import { dimensionsOf } from "../train/flags/onnx_flags.ts";
import type { GivenTrainFlags } from "../train/train_flags.ts";

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
export function dimensionsOfRun(
  file: OnnxFile,
  flags: Required<Pick<GivenTrainFlags, "micro-batch-size" | "seq">> & GivenTrainFlags,
): Readonly<Record<string, number>> {
  const counted = countedAxes(file).filter(({ size }) => typeof size === "string");
  return {
    ...Object.fromEntries(counted.map(({ flag, size }) => [size, flags[flag]])),
    ...dimensionsOf(flags.dimensions),
  };
}
