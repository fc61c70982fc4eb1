/**
 * What of a file is known before any run: nodes that read constants only are computed at once.
 *
 * Shapes are such constants, as files compute them step by step from those of their inputs.
 *
 * @module
 */

import { workOf } from "../compile/work.ts";
import type { HostArray } from "../devices/device.ts";
import { type Attributes, type NdArray, ndArray } from "../devices/reference/array.ts";
import { OPERATIONS } from "../devices/reference/model.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Node, Value } from "../graph/value.ts";
import { LayerGraph } from "../layers/layer.ts";
import { addNode } from "./add_node.ts";
import type { OnnxNode } from "./file/onnx_node.ts";
import { type Constant, hostArray } from "./file/onnx_tensor.ts";
import { quoted } from "./file/quoted.ts";

/** The most elements of a constant that is computed, and of all those of a file. */
const ELEMENTS_MAX = { one: 2 ** 24, all: 2 ** 27 } as const;

/** Operations, as {@linkcode workOf} counts them, that take as long as an element. */
const ELEMENT_WORK = 20;

/** Computes constants until they cost more than is good for anybody. */
export interface Folding {
  /**
   * The outputs of a node that reads constants, or asks for sizes only.
   *
   * @returns undefined where the node needs a run.
   * @throws {RangeError} when all constants together cost too much.
   */
  fold(node: OnnxNode, inputs: readonly (Value | undefined)[]): readonly Constant[] | undefined;
}

/** Opens the folding of one file. */
export function openFolding(): Folding {
  let all = 0;
  const spend = (elements: number, node: OnnxNode) => {
    all += elements;
    if (elements <= ELEMENTS_MAX.one && all <= ELEMENTS_MAX.all) return;
    throw new RangeError(
      `Cannot import the ONNX model: what it computes of constants must be at most ${ELEMENTS_MAX.one} elements, and ${ELEMENTS_MAX.all} in all, received more at ${node.op} (node ${
        quoted(node.name)
      })`,
    );
  };
  return {
    fold(node, inputs) {
      const own = Object.hasOwn(OWN_OPS, node.op) ? OWN_OPS[node.op] : undefined;
      const isKnown = inputs.every((input) => !input || input.data);
      if (own && (isKnown || SHAPE_OPS.has(node.op))) {
        return [own(node, inputs, (elements) => spend(elements, node))];
      }
      if (!isKnown) return undefined;
      const g = new LayerGraph();
      const operands = inputs.map((one) => one && g.constant(one.data!, one.shape, one.dtype));
      const outputs = addNode(g, node, operands);
      const elements = g.nodes.flatMap((one) => one.outputs)
        .reduce((sum, { shape }) => sum + elementCount(shape), 0);
      spend(Math.max(elements, workOf(g.nodes) / ELEMENT_WORK), node);
      return evaluate(g, outputs);
    },
  };
}

const toNumbers = (value: Value | undefined): number[] =>
  value?.data ? Array.from(value.data, Number) : [];

/** They read the shape of their input only. */
const SHAPE_OPS = new Set(["Shape", "Size"]);

/** Makes a constant; says how many elements that will be before it does. */
type OwnOp = (
  node: OnnxNode,
  inputs: readonly (Value | undefined)[],
  spend: (elements: number) => void,
) => Constant;

const int64 = (numbers: readonly number[], shape: readonly number[]): Constant => ({
  dtype: "i64",
  shape,
  data: hostArray("i64", numbers),
});

/** Operations of which no graph has need, as their results are known. */
const OWN_OPS: Readonly<Record<string, OwnOp>> = {
  Constant(node) {
    if (node.value) return node.value;
    throw new TypeError(
      `Cannot import the ONNX model: a Constant must have a value that is a tensor or numbers, received none (node ${
        quoted(node.name)
      })`,
    );
  },
  Shape({ attributes: { start, end } }, [x]) {
    const sizes = x!.shape.slice(Number(start ?? 0), end === undefined ? undefined : Number(end));
    return int64(sizes, [sizes.length]);
  },
  Size: (_, [x]) => int64([elementCount(x!.shape)], []),
  ConstantOfShape(node, [sizes], spend) {
    const { value } = node, shape = toNumbers(sizes), dtype = value?.dtype ?? "f32";
    if (shape.some((size) => size < 0)) {
      throw new RangeError(
        `Cannot import the ONNX model: the shape of a ConstantOfShape must have sizes from 0, received [${shape}] (node ${
          quoted(node.name)
        })`,
      );
    }
    spend(elementCount(shape));
    const data = hostArray(dtype, Array(elementCount(shape)).fill(value?.data[0] ?? 0));
    return { dtype, shape, data };
  },
  Range(_, inputs, spend) {
    const [start = 0, limit = 0, delta = 1] = inputs.map((one) => toNumbers(one)[0]);
    const length = Math.max(0, Math.ceil((limit - start) / delta));
    spend(length);
    const dtype = inputs[0]!.dtype;
    const numbers = Array.from({ length }, (_, i) => start + i * delta);
    return { dtype, shape: [length], data: hostArray(dtype, numbers) };
  },
};

/** The names of operations that no graph needs. */
export const KNOWN_OPS: readonly string[] = Object.keys(OWN_OPS);

/** Computes values of a graph without inputs. */
function evaluate(g: LayerGraph, outputs: readonly Value[]): Constant[] {
  const arrays = new Map<Value, NdArray>();
  const arrayOf = (value: Value) => {
    const known = arrays.get(value) ?? ndArray(value.dtype, value.shape, numbersOf(value.data!));
    arrays.set(value, known);
    return known;
  };
  for (const node of g.nodes) {
    const name = node.domain ? `${node.domain}.${node.op}` : node.op;
    const operation = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
    if (!operation) {
      throw new TypeError(
        `Cannot import the ONNX model: operations on constants must be known to the reference device, received ${name}`,
      );
    }
    const results = operation(node.inputs.map(arrayOf), attributesOf(node), node.outputs.length);
    [results].flat().forEach((array, i) => arrays.set(node.outputs[i]!, array));
  }
  return outputs.map((value) => {
    if (value.data) return { dtype: value.dtype, shape: value.shape, data: value.data };
    const { dtype, shape, values } = arrayOf(value);
    return { dtype, shape, data: hostArray(dtype, values) };
  });
}

const numbersOf = (data: HostArray): ArrayLike<number> =>
  data instanceof BigInt64Array ? Float64Array.from(data, Number) : data;

/** The attributes of a graph's node as the reference device asks for them. */
function attributesOf({ attributes }: Node): Attributes {
  return {
    number(name, otherwise) {
      const value = attributes[name];
      if (typeof value === "object" && "float" in value) return value.float;
      return typeof value === "number" ? value : otherwise;
    },
    string: (name, otherwise) => String(attributes[name] ?? otherwise),
    numbers(name) {
      const value = attributes[name];
      return Array.isArray(value) ? value : undefined;
    },
  };
}
