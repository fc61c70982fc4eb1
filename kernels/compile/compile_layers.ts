/**
 * Compiles the layers of a model one after the other, and joins what one gives to those that take it.
 *
 * @module
 */

import { type AnyLayer, type Model, NotGivenError } from "../layers/layer.ts";
import { dependentValues, passesGradient, sourcesOf } from "../graph/autodiff.ts";
import type { NodeGraph } from "../graph/node_graph.ts";
import type { Node, Value } from "../graph/value.ts";
import { type OpenLayer, openLayer } from "./compile_layer.ts";
import type { CompileOptions } from "./compile_options.ts";
import type { CutModel } from "./cut_model.ts";
import type { ForwardGraph, LayerOptions } from "./forward_graph.ts";
import { isSkip, type LayerProgram, type OutputSpec } from "./layer_program.ts";
import type { Recompute } from "./saved_values.ts";

/** A layer, and its program for each slice of a sequence. */
export interface CompiledLayer {
  readonly layer: AnyLayer;
  readonly compiled: readonly LayerProgram[];
}

/** What stands before the names of a layer's parameters. */
export const prefixOf = ({ name, prefix = `${name}.` }: Pick<AnyLayer, "name" | "prefix">) =>
  prefix;

/**
 * Compiles one layer whose takes, if any, are the last uses of what they take.
 *
 * @param layer its last use in a model decides `isLoss`.
 * @param handed what the layer before hands on, by key; none for the first layer.
 * @throws {TypeError} when an op has no gradient, or none comes to a parameter.
 * @throws {RangeError} when a loss is not one f32 number for each sample, or the precision unknown.
 */
export function compileLayer(
  layer: AnyLayer,
  handed: readonly OutputSpec[] | undefined,
  options: LayerOptions,
): LayerProgram {
  const open = openLayer(layer, handed, options);
  gradientEnds([layer], [open.forward], false);
  return open.compile(() => true);
}

/**
 * Compiles the layers of a model in order, each for all slices.
 *
 * [Note: stopped gradients] A parameter from which every path to the loss passes through a
 * `g.stopGradient` gets no gradient. It is compiled as a frozen one: with a gradient of zero the
 * optimizer would still let its weights decay. So it is in PyTorch, where it has no `grad`. Of tied
 * parameters one that gets a gradient suffices.
 */
export function* compileLayers(
  { layers, ties = [] }: Pick<Model, "layers" | "ties">,
  recompute: Recompute,
  options: CompileOptions,
  cut: CutModel | undefined,
): Generator<CompiledLayer> {
  const { endsWithLoss = true, frozen, precision, slices = 1 } = options;
  const canonicalOf = new Map(ties.map(([canonical, alias]) => [alias, canonical]));
  const canonical = (name: string) => canonicalOf.get(name) ?? name;
  const all = cut?.layers ?? layers;
  const optionsOf = (layer: AnyLayer, i: number, index: number): LayerOptions => ({
    isLoss: endsWithLoss && i === layers.length - 1,
    recompute,
    precision,
    ...slices > 1 && { slice: { index, count: slices } },
    ...frozen && {
      frozen: (own) => frozen(canonical(prefixOf(layer) + own)),
    },
  });
  const opened = openLayers(all, slices, optionsOf);
  const lastUse = new Map<string, number>();
  opened.forEach(([{ takes }], i) => {
    for (const name of takes) lastUse.set(name, i);
  });
  for (const [i, [{ gives }]] of opened.entries()) {
    const unused = [...gives.keys()].find((name) => !lastUse.has(name));
    if (unused === undefined) continue;
    throw new TypeError(
      `Cannot compile model: a later layer must take ${JSON.stringify(unused)}, which the layer ${
        named(all[i]!)
      } gives, received none that does`,
    );
  }
  const ends = gradientEnds(all, opened.map((one) => one.at(-1)!.forward), endsWithLoss);
  const trained = new Set(ends.trained.map(canonical));
  const stopped = new Set(ends.stopped.map(canonical)).difference(trained);
  if (stopped.size > 0) {
    const all = (name: string) => stopped.has(name) || (frozen?.(name) ?? false);
    return yield* compileLayers({ layers, ties }, recompute, { ...options, frozen: all }, cut);
  }
  for (const [i, layer] of all.entries()) {
    const compiled = opened[i]!.map((one) => one.compile((name) => lastUse.get(name) === i));
    yield { layer, compiled };
  }
}

/** Whether a node passes on what is asked for. */
type Passes = (g: NodeGraph, node: Node) => boolean;

/**
 * The parameters to which a gradient comes, and those to which none does as `g.stopGradient` says, by
 * full name.
 *
 * @throws {TypeError} when none comes to another one that is not frozen: it names the operation.
 */
function gradientEnds(
  layers: readonly AnyLayer[],
  forwards: readonly ForwardGraph[],
  endsWithLoss: boolean,
): { readonly trained: readonly string[]; readonly stopped: readonly string[] } {
  /** Of each layer the values that have an effect on the loss along nodes that pass it on. */
  const effective = (passes: Passes) => {
    let keys = new Set<string>();
    return forwards.toReversed().map(({ g, inputs, outputs }, i) => {
      const isEnd = !endsWithLoss || i === 0;
      const ends = outputs.filter(({ spec }) => isEnd || keys.has(spec.name));
      const sources = sourcesOf(g, ends.map(({ value }) => value), (node) => passes(g, node));
      const read = inputs.filter(({ value }) => sources.has(value)).map(({ spec }) => spec.name);
      keys = new Set([...[...keys].filter(isSkip), ...read]);
      return sources;
    }).toReversed();
  };
  const differentiable = effective(passesGradient), all = effective(() => true);
  const unstopped = effective((g, node) => !g.stops.has(node));
  const trained: string[] = [], stopped: string[] = [];
  for (const [i, { parameters }] of forwards.entries()) {
    for (const { spec: { name, frozen }, value } of parameters) {
      if (frozen) continue;
      const isStopped = all[i]!.has(value) && !unstopped[i]!.has(value);
      if (differentiable[i]!.has(value)) trained.push(prefixOf(layers[i]!) + name);
      else if (isStopped) stopped.push(prefixOf(layers[i]!) + name);
      else {
        const end = endOf(forwards, unstopped, i, value);
        throw new TypeError(
          `Cannot train layer ${named(layers[i]!)}: ` +
            (end
              ? `a gradient must come to its parameter "${name}", received none through ${end.op} of layer ${
                named(layers[end.layer]!)
              }; where that is wanted, write g.stopGradient(x) or freeze the parameter`
              : `the result must depend on every parameter, received "${name}" unused`),
        );
      }
    }
  }
  return { trained, stopped };
}

/** The first operation behind a parameter of a layer that passes no gradient on. */
function endOf(
  forwards: readonly ForwardGraph[],
  unstopped: readonly ReadonlySet<Value>[],
  first: number,
  parameter: Value,
): { readonly op: string; readonly layer: number } | undefined {
  let keys = new Set<string>();
  for (let layer = first; layer < forwards.length; layer++) {
    const { g, inputs, outputs } = forwards[layer]!;
    const read = inputs.filter(({ spec }) => keys.has(spec.name)).map(({ value }) => value);
    const dependent = dependentValues(g, layer === first ? [parameter] : read);
    const node = g.nodes.find((node) =>
      node.inputs.some((input) => dependent.has(input)) && !passesGradient(g, node) &&
      !g.stops.has(node) && node.outputs.some((output) => unstopped[layer]!.has(output))
    );
    if (node) return { op: node.op, layer };
    const made = outputs.filter(({ value }) => dependent.has(value)).map(({ spec }) => spec.name);
    keys = new Set([...[...keys].filter(isSkip), ...made]);
  }
}

type OpenSlices = readonly [OpenLayer, ...OpenLayer[]];

/** Builds the forward of every layer for all slices. */
function openLayers(
  layers: readonly AnyLayer[],
  slices: number,
  optionsOf: (layer: AnyLayer, i: number, slice: number) => LayerOptions,
): OpenSlices[] {
  const opened: OpenSlices[] = [], given = new Map<string, OutputSpec>();
  let handed: readonly OutputSpec[] | undefined;
  const open = (i: number) =>
    Array.from(
      { length: slices },
      (_, slice) => openLayer(layers[i]!, handed, { ...optionsOf(layers[i]!, i, slice), given }),
    ) as unknown as OpenSlices;
  for (const i of layers.keys()) {
    try {
      opened.push(open(i));
    } catch (cause) {
      throw circleError(cause, layers, i, (later) => open(later)[0].gives);
    }
    handed = opened[i]![0].handed;
    for (const [name, spec] of opened[i]![0].gives) given.set(name, spec);
  }
  return opened;
}

const named = ({ name }: AnyLayer) => JSON.stringify(name);

/** Where a layer takes what only a later one gives: an error that names the circle. */
function circleError(
  cause: unknown,
  layers: readonly AnyLayer[],
  user: number,
  givesOf: (layer: number) => ReadonlyMap<string, unknown>,
): unknown {
  const error = cause instanceof Error && cause.cause instanceof NotGivenError
    ? cause.cause
    : undefined;
  if (!error) return cause;
  const gives = (layer: number) => {
    try {
      return givesOf(layer).has(error.value);
    } catch {
      return false; // What is handed to it is not known.
    }
  };
  const maker = layers.findIndex((_, layer) => layer > user && gives(layer));
  if (maker < 0) return cause;
  const circle = [...layers.slice(user, maker + 1), layers[user]!].map(named);
  const shown = circle.length > 6 ? [...circle.slice(0, 3), "…", ...circle.slice(-2)] : circle;
  return new RangeError(
    `Cannot compile model: the layer ${named(layers[user]!)} must not take ${
      JSON.stringify(error.value)
    } from a later one, received a circle: ${shown.join(" → ")}`,
  );
}
