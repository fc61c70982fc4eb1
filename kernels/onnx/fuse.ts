/**
 * Operations that exporters write step by step, as the one that they are.
 *
 * [Note: fused steps] PyTorch writes a layer norm as nine operations in opsets before 17, and a GELU as
 * five or eight. Trained like that, most of their results are kept until the backward: four times the
 * activations of a norm, and a pass over memory for each. What is in between must be read by nobody
 * else.
 *
 * @module
 */

import { sameShape } from "../graph/shapes.ts";
import type { Constant, OnnxGraph, OnnxNode } from "./read_file.ts";

/** What stands around the nodes of a file. */
interface Surroundings {
  /** The node that makes a value, where it is of that operation and nobody but so many read it. */
  made(value: string | undefined, op: string, readers?: number): OnnxNode | undefined;
  /** The number that a value is, whichever run. */
  numberOf(value: string | undefined): number | undefined;
  /** How many axes a weight has. */
  isVector(value: string): boolean;
}

/** What a node is the last step of: the operation, and the steps before. */
interface Found {
  readonly fused: OnnxNode;
  readonly steps: readonly OnnxNode[];
}

/** The nodes of a file with fewer of them. */
export function fuseNodes(file: OnnxGraph): readonly OnnxNode[] {
  const around = surroundings(file), gone = new Set<OnnxNode>();
  const fused = new Map<OnnxNode, OnnxNode>();
  for (const node of file.nodes) {
    const found = layerNorm(node, around) ?? gelu(node, around) ?? tanhGelu(node, around);
    if (!found) continue;
    fused.set(node, found.fused);
    found.steps.forEach((step) => gone.add(step));
  }
  return file.nodes.filter((node) => !gone.has(node)).map((node) => fused.get(node) ?? node);
}

function surroundings({ nodes, initializers, outputs }: OnnxGraph): Surroundings {
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

/** The operand beside one of two that commute. */
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

/** Whether a mean is taken over the last axis, which stays. */
function isRowMean(mean: OnnxNode): boolean {
  const axes = mean.constants.get(1);
  return axes !== undefined && sameShape(Array.from(axes.data, Number), [-1]) &&
    (mean.attributes.keepdims ?? 1) === 1;
}

/** (x − mean) ÷ √(mean of its squares + ε) · weight + bias */
function layerNorm(sum: OnnxNode, { made, numberOf, isVector }: Surroundings): Found | undefined {
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
function gelu(whole: OnnxNode, { made, numberOf }: Surroundings): Found | undefined {
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
function tanhGelu(whole: OnnxNode, { made, numberOf }: Surroundings): Found | undefined {
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
