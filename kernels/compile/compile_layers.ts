/**
 * Compiles the layers of a model one after the other, and joins what one gives to those that take it.
 *
 * @module
 */

import { type AnyLayer, type Model, NotGivenError } from "../layers/layer.ts";
import { type OpenLayer, openLayer } from "./compile_layer.ts";
import type { CompileOptions } from "./compile_options.ts";
import type { CutModel } from "./cut_model.ts";
import type { LayerOptions } from "./forward_graph.ts";
import type { LayerProgram, OutputSpec } from "./layer_program.ts";
import type { Recompute } from "./saved_values.ts";

/** A layer, and its program for each slice of a sequence. */
export interface CompiledLayer {
  readonly layer: AnyLayer;
  readonly compiled: readonly LayerProgram[];
}

/** What stands before the names of a layer's parameters. */
export const prefixOf = ({ name, prefix = `${name}.` }: Pick<AnyLayer, "name" | "prefix">) =>
  prefix;

/** Compiles the layers of a model in order, each for all slices. */
export function* compileLayers(
  { layers, ties = [] }: Pick<Model, "layers" | "ties">,
  recompute: Recompute,
  { endsWithLoss = true, frozen, precision, slices = 1 }: CompileOptions,
  cut: CutModel | undefined,
): Generator<CompiledLayer> {
  const canonicalOf = new Map(ties.map(([canonical, alias]) => [alias, canonical]));
  const all = cut?.layers ?? layers;
  const optionsOf = (layer: AnyLayer, i: number, index: number): LayerOptions => ({
    isLoss: endsWithLoss && i === layers.length - 1,
    recompute,
    precision,
    ...slices > 1 && { slice: { index, count: slices } },
    ...frozen && {
      frozen: (own) => {
        const name = prefixOf(layer) + own;
        return frozen(canonicalOf.get(name) ?? name);
      },
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
  for (const [i, layer] of all.entries()) {
    const compiled = opened[i]!.map((one) => one.compile((name) => lastUse.get(name) === i));
    yield { layer, compiled };
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
