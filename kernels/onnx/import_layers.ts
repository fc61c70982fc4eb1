/**
 * The layers of a file that is cut: what each hands on, gives and takes.
 *
 * [Note: cutting a file] A file is a list of operations, of which most are too small to be a layer, and
 * between most of which much would have to travel. Layers begin and end where products with weights
 * do: of all places between one such product and the next, the one at which fewest bytes cross, the
 * last of several. Those at which a single tensor crosses are all taken: the ends of the blocks of a
 * transformer or of a residual network. What is left in one piece that is a large part of the model,
 * such as a U-Net whose skip connections cross everywhere, or a decoder whose blocks all read the
 * memory of an encoder, is cut wherever it is cheapest, until no piece is that large. So it is where
 * there are to be more layers, as for a schedule of many stages.
 *
 * What follows from the micro-batch alone and costs little, such as the mask of an attention, and what
 * follows from weights alone, such as a transposed one, never crosses: each layer computes its own.
 *
 * @module
 */

import { DTYPE_BYTES } from "../devices/device.ts";
import { elementCount } from "../graph/shapes.ts";
import type { Value } from "../graph/value.ts";
import type { AnyLayer, Handed, LayerGraph, TensorSpec, Tie } from "../layers/layer.ts";
import { addNode, openSources, type Plan, type Sources, type Step } from "./fold.ts";

/** The steps of a file as they are cut. */
export interface Cut {
  /** The steps of each layer, in order. */
  readonly layers: readonly (readonly Step[])[];
  /** Steps that each layer computes for itself. */
  readonly locals: ReadonlySet<Step>;
}

/** Steps that are computed by every layer may cost so much of the whole model. */
const LOCAL_SHARE = 0.01;

/** A piece that is a larger part of the model is cut where more than one tensor crosses, too. */
const LARGE_SHARE = 1 / 3;

/** The most cuts: of a file with more places as good every second one is taken, or one of three. */
const CUTS_MAX = 1000;

/** Operations by whose weights models are cut. */
export const PRODUCTS: ReadonlySet<string> = new Set([
  "Conv",
  "ConvTranspose",
  "Gemm",
  "MatMul",
  "com.microsoft.FusedMatMul",
]);

/** A place before a step where layers may be cut. */
interface Place {
  /** The step that comes next, among those that are not local. */
  readonly at: number;
  /** Bytes of what crosses. */
  readonly bytes: number;
  /** How many differentiable tensors cross. */
  readonly tensors: number;
}

/**
 * Cuts the steps of a plan where it is cheapest.
 *
 * @param least how many layers there must be, where the file has as many products with weights.
 */
export function cutPlan(plan: Plan, output: string, least = 1): Cut {
  const { locals, withWeight } = localSteps(plan);
  const steps = plan.steps.filter((step) => !locals.has(step));
  const places = bestPlaces(steps, placesOf(steps, output), withWeight);
  return { layers: split(steps, choose(steps, places, least)), locals };
}

/** Cuts the steps of the same file, for micro-batches of another size, where they are cut already. */
export function cutAlike(plan: Plan, { layers, locals }: Cut): Cut {
  const nameOf = ({ makes }: Step) => makes[0]!.name;
  const localNames = new Set([...locals].map(nameOf));
  const own = new Set(plan.steps.filter((step) => localNames.has(nameOf(step))));
  const starts = new Set(layers.slice(1).map((steps) => nameOf(steps[0]!)));
  const steps = plan.steps.filter((step) => !own.has(step));
  const at = steps.flatMap((step, i) => starts.has(nameOf(step)) ? [i] : []);
  return { layers: split(steps, at), locals: own };
}

/** Cuts steps before those that are named by their index, in order. */
export function split<T>(steps: readonly T[], at: readonly number[]): T[][] {
  const ends = [...at, steps.length];
  return ends.map((end, i) => steps.slice(ends[i - 1] ?? 0, end));
}

/** What a value follows from. */
interface Origin {
  readonly field: boolean;
  readonly weight: boolean;
  /** Whether all of it can be computed wherever it is read. */
  readonly isLocal: boolean;
  readonly work: number;
}

/** The steps that each layer computes for itself, and those that read a weight. */
function localSteps({ steps, inputs, weights }: Plan) {
  const total = steps.reduce((sum, { work }) => sum + work, 0);
  const origins = new Map<string, Origin>();
  const originOf = (name: string): Origin =>
    origins.get(name) ??
      { field: inputs.has(name), weight: weights.has(name), isLocal: true, work: 0 };
  const locals = new Set<Step>(), withWeight = new Set<Step>();
  for (const step of steps) {
    const from = step.reads.filter((name) => name !== "").map(originOf);
    const field = from.some((one) => one.field), weight = from.some((one) => one.weight);
    const work = from.reduce((sum, one) => sum + one.work, step.work);
    // What dropout leaves out is drawn layer by layer.
    const isLocal = from.every((one) => one.isLocal) && step.node.op !== "Dropout" &&
      (!field || !weight && work <= LOCAL_SHARE * total);
    if (isLocal) locals.add(step);
    if (from.some((one) => one.weight && !one.field)) withWeight.add(step);
    for (const { name } of step.makes) origins.set(name, { field, weight, isLocal, work });
  }
  return { locals, withWeight };
}

const bytesOf = ({ dtype, shape }: TensorSpec) => elementCount(shape) * DTYPE_BYTES[dtype];

/** All places between steps, each with what crosses it. */
function placesOf(steps: readonly Step[], output: string): Place[] {
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

/** The best place between each product with a weight and the next, and before the first one. */
function bestPlaces(
  steps: readonly Step[],
  places: readonly Place[],
  withWeight: ReadonlySet<Step>,
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

/** The places at which to cut, by the index of the step behind each. */
function choose(steps: readonly Step[], places: readonly Place[], least: number): number[] {
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

/** The layers of a plan, and which of their parameters are one. */
interface CutLayers {
  readonly layers: readonly AnyLayer[];
  readonly ties: readonly Tie[];
}

/** What a layer has to do. */
interface Part {
  readonly name: string;
  /** Its steps and those that it computes for itself, in the order of the file. */
  readonly steps: readonly Step[];
  /** What it calls the weights that it reads, by their names. */
  readonly parameters: ReadonlyMap<string, string>;
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /** What it hands to the next layer. */
  readonly hands: readonly string[];
  /** What it gives to others. */
  readonly gives: readonly string[];
  /** What it takes of those. */
  readonly takes: readonly string[];
}

/**
 * The layers of a plan.
 *
 * [Note: weights of several layers] A weight that several layers read, such as a table that is that of
 * the embedding and of the head, is a parameter of each of them, tied to that of the first: as much
 * travels as it has elements, once a step, where a value that is given would travel with every
 * micro-batch. Gradients of all uses are added, as in PyTorch.
 *
 * @param lossOf what the last layer makes of the output.
 */
export function layersOf(
  plan: Plan,
  cut: Cut,
  output: string,
  lossOf: (g: LayerGraph, output: Value) => Value,
): CutLayers {
  const parts = partsOf(plan, cut), ties: Tie[] = [], first = new Set<string>();
  for (const [weight, parameter] of parts.flatMap(({ parameters }) => [...parameters])) {
    if (first.has(weight)) ties.push([weight, parameter]);
    first.add(weight);
  }
  const layers = parts.map((part, i): AnyLayer => {
    const { name, prefix } = part, before = parts[i - 1];
    return {
      name,
      prefix,
      build(g, x) {
        const sources = buildPart(g, plan, part, before && x ? handedValues(before, x) : []);
        if (i === parts.length - 1) return lossOf(g, sources.get(output)!);
        for (const given of part.gives) g.give(given, sources.get(given)!);
        return handed(part.hands, sources);
      },
    };
  });
  return { layers, ties };
}

/** Keys of records say no names of the file, so that equal layers are one program. */
const keyOf = (place: number) => `value${place}`;

const handedValues = ({ hands }: Part, x: Handed): (readonly [string, Value])[] =>
  hands.map((
    name,
    i,
  ) => [name, hands.length === 1 ? x as Value : (x as Record<string, Value>)[keyOf(i)]!]);

const handed = (hands: readonly string[], sources: Sources): Handed =>
  hands.length === 1
    ? sources.get(hands[0]!)!
    : Object.fromEntries(hands.map((name, i) => [keyOf(i), sources.get(name)!]));

function buildPart(
  g: LayerGraph,
  plan: Plan,
  { steps, parameters, prefix, takes }: Part,
  handed: readonly (readonly [name: string, value: Value])[],
): Sources {
  const sources = openSources(g, plan, (weight) => parameters.get(weight)!.slice(prefix.length));
  for (const [name, value] of handed) sources.set(name, value);
  for (const name of takes) sources.set(name, g.take(name));
  for (const { node, reads } of steps) {
    const values = reads.map((name) => name === "" ? undefined : sources.get(name));
    const made = addNode(g, node, values);
    node.outputs.forEach((name, i) => name && made[i] && sources.set(name, made[i]));
  }
  return sources;
}

function partsOf(plan: Plan, { layers, locals }: Cut): Part[] {
  const steps = layers.map((own) => withLocals(plan, own, locals));
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
    const weights = [...plan.weights.keys()].filter((name) => reads[i]!.has(name));
    const parameters = new Map(
      weights.map((name) => [name, seen.has(name) ? `${name}@${i}` : name]),
    );
    weights.forEach((name) => seen.add(name));
    return {
      name: `${i} ${own.at(-1)!.node.name}`,
      steps: steps[i]!,
      parameters,
      prefix: commonPrefix([...parameters.values()]),
      hands: made[i]!.filter((name) => isHanded(name, i)),
      gives: given[i]!,
      takes: given.slice(0, i).flat().filter((name) => reads[i]!.has(name)),
    };
  });
}

/** Steps with those before them that a layer computes for itself. */
function withLocals(plan: Plan, own: readonly Step[], locals: ReadonlySet<Step>): readonly Step[] {
  const mine = new Set(own), wanted = new Set<string>();
  return plan.steps.toReversed().filter((step) => {
    const isMine = mine.has(step) ||
      locals.has(step) && step.makes.some(({ name }) => wanted.has(name));
    if (isMine) step.reads.forEach((name) => wanted.add(name));
    return isMine;
  }).reverse();
}

/** What names have in common, up to a dot or a slash: layers that differ in it only are one program. */
function commonPrefix(names: readonly string[]): string {
  const [first = "", ...others] = names;
  let length = first.length;
  for (const other of others) {
    while (!other.startsWith(first.slice(0, length))) length--;
  }
  const shared = first.slice(0, length);
  return shared.slice(0, Math.max(shared.lastIndexOf("."), shared.lastIndexOf("/")) + 1);
}
