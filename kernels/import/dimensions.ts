/**
 * The sizes of a file's inputs that only a run knows, given by name.
 *
 * @module
 */

import { elementCount, ELEMENTS_MAX } from "../graph/shapes.ts";
import type { TensorSpec } from "../layers/layer.ts";
import type { OnnxInput } from "./file/onnx_graph.ts";
import { listed, quoted } from "./file/quoted.ts";

/** Sizes by the names that the file has for them; one without a name is `input.axis`. */
export type Dimensions = Readonly<Record<string, number>>;

/**
 * The inputs with every size a number.
 *
 * @throws {TypeError} when a size is neither in the file nor given, or the file has none of a name.
 * @throws {RangeError} when a size is no whole number from 1, or an input too large.
 */
export function staticInputs(
  inputs: readonly OnnxInput[],
  dimensions: Dimensions,
): readonly TensorSpec[] {
  const known = new Set(inputs.flatMap(({ shape }) => shape.filter(isName)));
  for (const [name, size] of Object.entries(dimensions)) {
    if (!known.has(name)) {
      throw new TypeError(
        `Cannot import the ONNX model: dimensions must be among those that it leaves open, ${
          listed(known) || "of which it has none"
        }, received ${quoted(name)}`,
      );
    }
    if (Number.isSafeInteger(size) && size >= 1) continue;
    throw new RangeError(
      `Cannot import the ONNX model: the dimension ${
        quoted(name)
      } must be a whole number from 1, received ${size}`,
    );
  }
  return inputs.map(({ name, dtype, shape }) => {
    const sizes = shape.map((size) =>
      typeof size === "number" ? size : given(dimensions, size, name)
    );
    if (elementCount(sizes) <= ELEMENTS_MAX) return { name, dtype, shape: sizes };
    throw new RangeError(
      `Cannot import the ONNX model: the input ${
        quoted(name)
      } must have at most ${ELEMENTS_MAX} elements, received shape [${sizes}]`,
    );
  });
}

const isName = (size: number | string): size is string => typeof size === "string";

function given(dimensions: Dimensions, size: string, input: string): number {
  if (Object.hasOwn(dimensions, size)) return dimensions[size]!;
  throw new TypeError(
    `Cannot import the ONNX model: the dimension ${quoted(size)} of its input ${
      quoted(input)
    } must be given, received ${listed(Object.keys(dimensions)) || "none"}`,
  );
}

/** The name of the first axis of all inputs, where it is one that is given: that of samples. */
export function samplesDimension(inputs: readonly OnnxInput[]): string | undefined {
  const names = new Set(inputs.map(({ shape }) => shape[0]));
  const [first] = names;
  return names.size === 1 && typeof first === "string" ? first : undefined;
}
