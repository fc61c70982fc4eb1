/**
 * Fuses operations that exporters write as several steps.
 *
 * [Note: fused steps] PyTorch writes a layer norm as nine operations in opsets before 17, and a
 * GELU as five or eight. Trained in this form, most of their results would be kept until the
 * backward pass: four times the activations of a norm, and a pass over memory for each.
 * Intermediate results must have no other readers.
 *
 * @module
 */

import { sameShape } from "../graph/shapes.ts";
import type { Constant, OnnxGraph, OnnxNode } from "./read_file.ts";

/** Finds the nodes and constants next to a node of a file. */
interface NodeContext {
  /** Returns the node that computes a value, if it has this operation and number of readers. */
  made(value: string | undefined, op: string, readers?: number): OnnxNode | undefined;
  /** Returns the number of a constant scalar. */
  numberOf(value: string | undefined): number | undefined;
  /** Returns whether a value is a weight with one axis. */
  isVector(value: string): boolean;
}

/** A fused operation, and the steps before its last one. */
interface Found {
  readonly fused: OnnxNode;
  readonly steps: readonly OnnxNode[];
}

/** Returns the nodes of a file with fused operations. */
export function fuseNodes(file: OnnxGraph): readonly OnnxNode[] {
  const around = contextOf(file), gone = new Set<OnnxNode>();
  const fused = new Map<OnnxNode, OnnxNode>();
  for (const node of file.nodes) {
    const found = layerNorm(node, around) ?? gelu(node, around) ?? tanhGelu(node, around);
    if (!found) continue;
    fused.set(node, found.fused);
    found.steps.forEach((step) => gone.add(step));
  }
  return file.nodes.filter((node) => !gone.has(node)).map((node) => fused.get(node) ?? node);
}

function contextOf({ nodes, initializers, outputs }: OnnxGraph): NodeContext {
  const makers = new Map(nodes.flatMap((node) => node.outputs.map((name) => [name, node])));
  const reads = new Map<string, number>();
  for (const name of [...nodes.flatMap(({ inputs }) => inputs), ...outputs]) {
    reads.set(name, (reads.get(name) ?? 0) + 1);
  }
  const constantOf = (name: string): Constant | undefined => {
    const maker = makers.get(name);
    return maker?.op === "Constant" ? maker.value : initializers.get(name);
  };
  return {
    made(value = "", op, readers = 1) {
      const maker = makers.get(value);
      return maker?.op === op && reads.get(value) === readers ? maker : undefined;
    },
    numberOf(value = "") {
      const data = constantOf(value)?.data;
      return data?.length === 1 ? Number(data[0]) : undefined;
    },
    isVector: (value) => initializers.get(value)?.shape.length === 1,
  };
}

const isNear = (value: number | undefined, wanted: number) =>
  value !== undefined && Math.abs(value - wanted) <= 1e-6 * Math.abs(wanted);

/** Returns the other operand of a commutative operation. */
function beside(
  { inputs: [a = "", b = ""] }: OnnxNode,
  is: (value: string) => unknown,
): string | undefined {
  return is(a) ? b : is(b) ? a : undefined;
}

const alike = (node: OnnxNode, change: Partial<OnnxNode>): OnnxNode => ({
  name: node.name,
  op: node.op,
  inputs: node.inputs,
  outputs: node.outputs,
  attributes: {},
  constants: new Map(),
  ...change,
});

/** Returns whether a mean is taken over the last axis, which remains. */
function isRowMean(mean: OnnxNode): boolean {
  const axes = mean.constants.get(1);
  return axes !== undefined && sameShape(Array.from(axes.data, Number), [-1]) &&
    (mean.attributes.keepdims ?? 1) === 1;
}

/** (x − mean) ÷ √(mean of its squares + ε) · weight + bias */
function layerNorm(sum: OnnxNode, { made, numberOf, isVector }: NodeContext): Found | undefined {
  const scaledName = sum.op === "Add" ? beside(sum, isVector) : undefined;
  const scaled = made(scaledName, "Mul"), normalName = scaled && beside(scaled, isVector);
  const normal = made(normalName, "Div"), [centredName, rootName] = normal?.inputs ?? [];
  const centred = made(centredName, "Sub", 2), root = made(rootName, "Sqrt");
  const above = made(root?.inputs[0], "Add");
  const varianceName = above && beside(above, (value) => numberOf(value) !== undefined);
  const variance = made(varianceName, "ReduceMean"), square = made(variance?.inputs[0], "Pow");
  const mean = made(centred?.inputs[1], "ReduceMean"), [x] = mean?.inputs ?? [];
  const isNorm = square?.inputs[0] === centredName && numberOf(square?.inputs[1]) === 2 &&
    x !== undefined && centred?.inputs[0] === x && isRowMean(mean!) && isRowMean(variance!);
  if (!isNorm || !scaled || !normal || !centred || !root || !above || !variance || !mean) {
    return undefined;
  }
  const epsilon = numberOf(beside(above, (value) => value === varianceName))!;
  const [weight, bias] = [
    beside(scaled, (value) => value === normalName)!,
    beside(sum, (value) => value === scaledName)!,
  ];
  return {
    fused: alike(sum, {
      op: "LayerNormalization",
      inputs: [x, weight, bias],
      attributes: { axis: -1, epsilon: { float: epsilon } },
    }),
    steps: [scaled, normal, centred, root, above, variance, square!, mean],
  };
}

/** x · (1 + erf(x ÷ √2)) · ½ */
function gelu(whole: OnnxNode, { made, numberOf }: NodeContext): Found | undefined {
  const is = (wanted: number) => (value: string) => isNear(numberOf(value), wanted);
  const product = made(whole.op === "Mul" ? beside(whole, is(0.5)) : undefined, "Mul");
  const above = product && product.inputs.map((name) => made(name, "Add")).find((one) => one);
  const erf = made(above && beside(above, is(1)), "Erf"), scaled = made(erf?.inputs[0], "Div");
  const [x, root] = scaled?.inputs ?? [];
  if (!product || !above || !erf || !scaled || x === undefined) return undefined;
  if (!isNear(numberOf(root), Math.SQRT2) || !product.inputs.includes(x)) return undefined;
  const fused = alike(whole, { op: "Gelu", inputs: [x], attributes: { approximate: "none" } });
  return { fused, steps: [product, above, erf, scaled] };
}

/** (½ · x) · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) */
function tanhGelu(whole: OnnxNode, { made, numberOf }: NodeContext): Found | undefined {
  if (whole.op !== "Mul") return undefined;
  const is = (wanted: number) => (value: string) => isNear(numberOf(value), wanted);
  const above = whole.inputs.map((name) => made(name, "Add")).find((one) => one);
  const half = whole.inputs.map((name) => made(name, "Mul")).find((one) => one);
  const tanh = made(above && beside(above, is(1)), "Tanh"), scaled = made(tanh?.inputs[0], "Mul");
  const sum = made(scaled && beside(scaled, is(Math.sqrt(2 / Math.PI))), "Add");
  const cubes = sum?.inputs.map((name) => made(name, "Mul")).find((one) => one);
  const cube = made(cubes && beside(cubes, is(0.044715)), "Pow"), [x, three] = cube?.inputs ?? [];
  if (!above || !half || !tanh || !scaled || !sum || !cubes || !cube || x === undefined) {
    return undefined;
  }
  const isGelu = numberOf(three) === 3 && sum.inputs.includes(x) && beside(half, is(0.5)) === x;
  if (!isGelu) return undefined;
  const fused = alike(whole, { op: "Gelu", inputs: [x], attributes: { approximate: "tanh" } });
  return { fused, steps: [above, half, tanh, scaled, sum, cubes, cube] };
}
