/**
 * A file walked once: what is known before a run is computed, and of all other values their types.
 *
 * @module
 */

import { workOf } from "../compile/work.ts";
import type { Value } from "../graph/value.ts";
import { LayerGraph, type TensorSpec } from "../layers/layer.ts";
import { addNode } from "./add_node.ts";
import { openFolding } from "./constants.ts";
import type { OnnxGraph } from "./file/onnx_graph.ts";
import type { OnnxNode } from "./file/onnx_node.ts";
import type { Constant } from "./file/onnx_tensor.ts";
import { fuseNodes } from "./fuse.ts";
import { SETTING_PLACES } from "./ops/table.ts";
import { openSources, type SourceTables, type Weight } from "./sources.ts";
import { quoted, shown } from "./file/quoted.ts";

/** A node that a run computes. */
export interface Step {
  readonly node: OnnxNode;
  /** The names of what it reads, one for each value whatever the file calls it; empty where left out. */
  readonly reads: readonly string[];
  /** What it makes. */
  readonly makes: readonly TensorSpec[];
  /** Its work, as models are cut by it. */
  readonly work: number;
  /** The nodes of {@linkcode Plan.graph} that it became. */
  readonly from: number;
  readonly to: number;
}

/** What a file computes, step by step. */
export interface Plan extends SourceTables {
  readonly steps: readonly Step[];
  /** All steps in one graph. */
  readonly graph: LayerGraph;
  /** What the file calls a value, in the graph. */
  readonly valueOf: (name: string) => Value | undefined;
  /** The one name of a value for which a file has several. */
  readonly canonical: (name: string) => string;
}

/** What a plan is made from. */
export interface PlanInput {
  readonly file: OnnxGraph;
  /** The inputs with every size a number. */
  readonly inputs: readonly TensorSpec[];
  /** Which weights are not trained. */
  readonly isFrozen: (weight: string) => boolean;
  /** Which are no weights but constants, such as masks of attention. */
  readonly isConstant?: (weight: string) => boolean;
}

/**
 * Walks a file.
 *
 * @throws {TypeError} naming the node whose operation, settings or inputs are not understood.
 */
export function planFile({ file, inputs, ...kinds }: PlanInput): Plan {
  const { weights, constants } = sortInitializers(file, kinds);
  const tables = { inputs: new Map(inputs.map((spec) => [spec.name, spec])), weights, constants };
  const graph = new LayerGraph(), sources = openSources(graph, tables), folding = openFolding();
  const steps: Step[] = [], names = new Map<Value, string>(), same = new Map<string, string>();
  const canonical = (name: string) => same.get(name) ?? name;
  const made = new Set<string>([...tables.inputs.keys(), ...file.initializers.keys()]);
  for (const node of fuseNodes(file)) {
    const reads = node.inputs.map(canonical);
    for (const [place, constant] of node.constants) {
      while (reads.length <= place) reads.push("");
      reads[place] = `${node.outputs[0]}.setting.${place}`;
      constants.set(reads[place], constant);
    }
    const values = reads.map((name) => name === "" ? undefined : readOf(name, node));
    for (const name of node.outputs) declare(name, node);
    const folded = folding.fold(node, values);
    if (folded) {
      node.outputs.forEach((name, i) => name && folded[i] && constants.set(name, folded[i]));
      continue;
    }
    const from = graph.nodes.length,
      outputs = addNode(graph, node, values),
      to = graph.nodes.length;
    reads.forEach((name, i) => values[i] && names.set(values[i], name));
    const makes = node.outputs.flatMap((name, i): TensorSpec[] => {
      const value = outputs[i];
      if (!name || !value) return [];
      sources.set(name, value);
      const known = names.get(value);
      if (known !== undefined) {
        same.set(name, known);
        return [];
      }
      names.set(value, name);
      return [{ name, dtype: value.dtype, shape: value.shape }];
    });
    const work = workOf(graph.nodes.slice(from, to));
    if (makes.length > 0) steps.push({ node, reads, makes, work, from, to });
  }
  return { ...tables, steps, graph, valueOf: (name) => sources.get(canonical(name)), canonical };

  function readOf(name: string, node: OnnxNode): Value {
    const value = sources.get(name);
    if (value) return value;
    throw new TypeError(
      `Cannot import the ONNX model: what a node reads must be made before it, received ${
        quoted(name)
      } as an input of ${shown(node.op)} (node ${quoted(node.name)})`,
    );
  }

  function declare(name: string, node: OnnxNode): void {
    if (name === "") return;
    if (!made.has(name)) return void made.add(name);
    throw new TypeError(
      `Cannot import the ONNX model: values must be made once, received ${
        quoted(name)
      } again from ${shown(node.op)} (node ${quoted(node.name)})`,
    );
  }
}

/** Numbers with a fraction are weights, but for settings of operations; all others are constants. */
function sortInitializers(
  { initializers, nodes }: OnnxGraph,
  { isFrozen, isConstant = () => false }: Pick<PlanInput, "isFrozen" | "isConstant">,
) {
  const settings = new Set(
    nodes.flatMap(({ op, inputs }) =>
      (Object.hasOwn(SETTING_PLACES, op) ? SETTING_PLACES[op]! : [])
        .map((place) => inputs[place] ?? "")
    ),
  );
  const weights = new Map<string, Weight>(), constants = new Map<string, Constant>();
  const statistics = new Set(
    nodes.filter(({ op }) => op === "BatchNormalization").flatMap(({ inputs }) => inputs.slice(3)),
  );
  for (const [name, constant] of initializers) {
    const { shape, data } = constant;
    if (data instanceof Float32Array && !settings.has(name) && !isConstant(name)) {
      weights.set(name, { shape, data, isFrozen: statistics.has(name) || isFrozen(name) });
    } else constants.set(name, constant);
  }
  return { weights, constants };
}
