/**
 * Cuts a file into layers.
 *
 * [Note: cutting a file] A file is a list of operations. Most are too small to be a layer, and most
 * cuts between them would send many bytes. Cuts are considered between two consecutive products
 * with weights, at the place where the fewest bytes cross (the last one, if several are equal). All
 * places where a single tensor crosses are used: the ends of the blocks of a transformer or of a
 * residual network. A remaining large piece, such as a U-Net with skip connections everywhere, or a
 * decoder whose blocks all read the memory of an encoder, is cut at its cheapest places until no
 * piece is large. The same is done if more layers are requested, as for a schedule with many
 * stages.
 *
 * Values that depend only on the micro-batch and cost little, such as the mask of an attention, and
 * values that depend only on weights, such as a transposed weight, never cross: each layer computes
 * them again.
 *
 * @module
 */

import { DTYPE_BYTES } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { TensorSpec, Value } from "../graph/value.ts";
import { type AnyLayer, type Handed, isValue, type LayerGraph, type Tie } from "../layers/layer.ts";
import {
  addNode,
  type FoldedFile,
  type FoldedNode,
  neededSteps,
  openSources,
  type Sources,
} from "./fold.ts";

/** The steps of each layer of a file, and the steps that each layer computes again. */
export type Cut = ReturnType<typeof cutSteps>;

/** Largest share of the work of the model for a step that every layer computes again. */
const LOCAL_SHARE = 0.01;

/** Share of the model above which a piece is also cut where several tensors cross. */
const LARGE_SHARE = 1 / 3;

/** Largest number of cuts: with more places, every second one is used, or every third, and so on. */
const CUTS_MAX = 1000;

/** Products, whose weights determine the cuts of a model. */
export const PRODUCTS: ReadonlySet<string> = new Set([
  "Conv",
  "ConvTranspose",
  "Gemm",
  "MatMul",
  "com.microsoft.FusedMatMul",
]);

/**
 * Cuts the steps of a file at the cheapest places.
 *
 * @param least smallest number of layers, if the file has enough products with weights.
 */
export function cutSteps(folded: FoldedFile, output: string, least = 1) {
  const { locals, withWeight } = localSteps(folded);
  const steps = folded.steps.filter((step) => !locals.has(step));
  const places = bestPlaces(steps, placesOf(steps, output), withWeight);
  return { layers: split(steps, choose(steps, places, least)), locals };
}

/** Cuts the same file, for another size of micro-batches, at the same places. */
export function cutAlike(folded: FoldedFile, { layers, locals }: Cut): Cut {
  const nameOf = ({ makes }: FoldedNode) => makes[0]!.name;
  const localNames = new Set([...locals].map(nameOf));
  const own = new Set(folded.steps.filter((step) => localNames.has(nameOf(step))));
  const starts = new Set(layers.slice(1).map((steps) => nameOf(steps[0]!)));
  const steps = folded.steps.filter((step) => !own.has(step));
  const at = steps.flatMap((step, i) => starts.has(nameOf(step)) ? [i] : []);
  return { layers: split(steps, at), locals: own };
}

/** Cuts steps before the given indices, which are in order. */
export function split<T>(steps: readonly T[], at: readonly number[]): T[][] {
  const ends = [...at, steps.length];
  return ends.map((end, i) => steps.slice(ends[i - 1] ?? 0, end));
}

/** Returns the steps that each layer computes again, and the steps that read a weight. */
function localSteps({ steps, inputs, weights }: FoldedFile) {
  const total = steps.reduce((sum, { work }) => sum + work, 0);
  /** The origin of a value; it is local if each layer can compute it again. */
  const outside = (name: string) => (
    { field: inputs.has(name), weight: weights.has(name), isLocal: true, work: 0 }
  );
  const origins = new Map<string, ReturnType<typeof outside>>();
  const originOf = (name: string) => origins.get(name) ?? outside(name);
  const locals = new Set<FoldedNode>(), withWeight = new Set<FoldedNode>();
  for (const step of steps) {
    const from = step.reads.filter((name) => name !== "").map(originOf);
    const field = from.some((one) => one.field), weight = from.some((one) => one.weight);
    const work = from.reduce((sum, one) => sum + one.work, step.work);
    // Masks of dropout are drawn for each layer.
    const isLocal = from.every((one) => one.isLocal) && step.node.op !== "Dropout" &&
      (!field || !weight && work <= LOCAL_SHARE * total);
    if (isLocal) locals.add(step);
    if (from.some((one) => one.weight && !one.field)) withWeight.add(step);
    for (const { name } of step.makes) origins.set(name, { field, weight, isLocal, work });
  }
  return { locals, withWeight };
}

const bytesOf = ({ dtype, shape }: TensorSpec) => elementCount(shape) * DTYPE_BYTES[dtype];

/**
 * Returns all possible cuts: before a step, by its index, with the bytes of the values that cross and the
 * number of differentiable tensors among them.
 */
function placesOf(steps: readonly FoldedNode[], output: string) {
  const last = new Map<string, number>();
  steps.forEach(({ reads }, i) => reads.forEach((name) => last.set(name, i)));
  last.set(output, steps.length);
  const endOf = ({ name }: TensorSpec) => last.get(name) ?? -1;
  const ends = Map.groupBy(steps.flatMap(({ makes }) => makes), endOf);
  let bytes = 0, tensors = 0;
  return steps.map(({ makes }, i) => {
    const place = { at: i, bytes, tensors };
    const change = (spec: TensorSpec, by: 1 | -1) => {
      bytes += by * bytesOf(spec);
      if (spec.dtype === "f32") tensors += by;
    };
    makes.filter((spec) => endOf(spec) >= i).forEach((spec) => change(spec, 1));
    ends.get(i)?.forEach((spec) => change(spec, -1));
    return place;
  });
}

type Place = ReturnType<typeof placesOf>[number];

/** Returns the best place between each product with a weight and the next one. */
function bestPlaces(
  steps: readonly FoldedNode[],
  places: readonly Place[],
  withWeight: ReadonlySet<FoldedNode>,
): Place[] {
  const best: Place[] = [];
  let between: Place | undefined, hasWeight = false;
  for (const [i, step] of steps.entries()) {
    const place = places[i]!;
    if (hasWeight && place.bytes <= (between?.bytes ?? Infinity)) between = place;
    if (withWeight.has(step)) hasWeight = true;
    if (!withWeight.has(step) || !PRODUCTS.has(step.node.op)) continue;
    if (between) best.push(between);
    between = undefined;
  }
  return best;
}

/** Returns the cuts, each as the index of the next step. */
function choose(steps: readonly FoldedNode[], places: readonly Place[], least: number): number[] {
  const before = [0];
  for (const { work } of steps) before.push(before.at(-1)! + work);
  const total = before.at(-1)!;
  const chosen = new Set(places.filter(({ tensors }) => tensors === 1).map(({ at }) => at));
  const pieces = () => {
    const ends = [0, ...[...chosen].sort((a, b) => a - b), steps.length];
    let next = 0;
    return ends.slice(1).map((to, i) => {
      const from = ends[i]!, inside: Place[] = [];
      for (; next < places.length && places[next]!.at < to; next++) {
        if (places[next]!.at > from) inside.push(places[next]!);
      }
      return { inside, work: before[to]! - before[from]! };
    });
  };
  for (;;) {
    const open = pieces().filter(({ inside }) => inside.length > 0);
    const large = open.filter(({ work }) => work > LARGE_SHARE * total);
    const isEnough = chosen.size >= Math.min(least - 1, CUTS_MAX);
    const [first, ...others] = large.length > 0 || isEnough ? large : open;
    if (!first) break;
    const { inside } = others.reduce((a, b) => b.work > a.work ? b : a, first);
    const cheapest = Math.min(...inside.map(({ bytes }) => bytes));
    for (const { at, bytes } of inside) if (bytes === cheapest) chosen.add(at);
  }
  const all = [...chosen].sort((a, b) => a - b), stride = Math.ceil(all.length / CUTS_MAX);
  return all.filter((_, i) => i % stride === 0);
}

/**
 * Returns the layers of a file, and the ties of their parameters.
 *
 * [Note: weights of several layers] A weight that several layers read, such as a table that the
 * embedding and the head share, is a parameter of each of them, tied to that of the first. It is
 * sent once per step, whereas a given value would be sent with every micro-batch. Gradients of all
 * uses are added, as in PyTorch.
 *
 * @param lossOf computes the result of the last layer from the output.
 */
export function layersOf(
  folded: FoldedFile,
  cut: Cut,
  output: string,
  lossOf: (g: LayerGraph, output: Value) => Value,
) {
  const parts = partsOf(folded, cut), ties: Tie[] = [], first = new Set<string>();
  for (const [weight, parameter] of parts.flatMap(({ parameters }) => [...parameters])) {
    if (first.has(weight)) ties.push([weight, parameter]);
    first.add(weight);
  }
  const layers = parts.map((part, i): AnyLayer => {
    const { name, prefix, parameters } = part, before = parts[i - 1];
    return {
      name,
      prefix,
      build(g, x) {
        const parameterOf = (weight: string) => parameters.get(weight)!.slice(prefix.length);
        const sources = openSources(g, folded, parameterOf);
        for (const [place, name] of before && x ? before.hands.entries() : []) {
          sources.set(name, isValue(x) ? x : x![keyOf(place)]!);
        }
        for (const name of part.takes) sources.set(name, g.take(name));
        for (const { node, reads } of part.steps) {
          const values = reads.map((name) => name === "" ? undefined : sources.get(name));
          const made = addNode(g, node, values);
          node.outputs.forEach((name, i) => name && made[i] && sources.set(name, made[i]));
        }
        if (i === parts.length - 1) return lossOf(g, sources.get(output)!);
        for (const given of part.gives) g.give(given, sources.get(given)!);
        return handed(part.hands, sources);
      },
    };
  });
  return { layers, ties };
}

/** Returns the key of a value; it has no name of the file, so that equal layers share a program. */
const keyOf = (place: number) => `value${place}`;

const handed = (hands: readonly string[], sources: Sources): Handed =>
  hands.length === 1
    ? sources.get(hands[0]!)!
    : Object.fromEntries(hands.map((name, i) => [keyOf(i), sources.get(name)!]));

/** Returns the layers of a file. */
function partsOf(folded: FoldedFile, { layers, locals }: Cut) {
  const steps = layers.map((own) => {
    const mine = new Set(own);
    return neededSteps(
      folded,
      new Set(),
      (step, isRead) => mine.has(step) || isRead && locals.has(step),
    );
  });
  const reads = steps.map((own) => new Set(own.flatMap((step) => step.reads)));
  const made = layers.map((own) => own.flatMap(({ makes }) => makes.map(({ name }) => name)));
  const usersOf = (name: string, from: number) =>
    reads.flatMap((read, i) => i > from && read.has(name) ? [i] : []);
  const isHanded = (name: string, from: number) => {
    const users = usersOf(name, from);
    return users.length === 1 && users[0] === from + 1;
  };
  const given = made.map((names, i) =>
    names.filter((name) => usersOf(name, i).length > 0 && !isHanded(name, i))
  );
  const seen = new Set<string>();
  return layers.map((own, i) => {
    const weights = [...folded.weights.keys()].filter((name) => reads[i]!.has(name));
    const parameters = new Map(
      weights.map((name) => [name, seen.has(name) ? `${name}@${i}` : name]),
    );
    weights.forEach((name) => seen.add(name));
    return {
      name: `${i} ${own.at(-1)!.node.name}`,
      /** Its steps and the local steps that it needs, in the order of the file. */
      steps: steps[i]!,
      /** Names of its parameters, by those of the weights that it reads. */
      parameters,
      /** Prefix of the names of its parameters. */
      prefix: commonPrefix([...parameters.values()]),
      /** Names of its outputs for the next layer. */
      hands: made[i]!.filter((name) => isHanded(name, i)),
      /** Names of its outputs for later layers. */
      gives: given[i]!,
      /** Names of its inputs from earlier layers. */
      takes: given.slice(0, i).flat().filter((name) => reads[i]!.has(name)),
    };
  });
}

/**
 * Returns the common prefix of names up to a dot or a slash; layers that differ only there share a
 * program.
 */
function commonPrefix(names: readonly string[]): string {
  const [first = "", ...others] = names;
  let length = first.length;
  for (const other of others) {
    while (!other.startsWith(first.slice(0, length))) length--;
  }
  const shared = first.slice(0, length);
  return shared.slice(0, Math.max(shared.lastIndexOf("."), shared.lastIndexOf("/")) + 1);
}
