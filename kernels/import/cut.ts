/**
 * Where the steps of a file are cut into layers: where least has to cross.
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
import type { TensorSpec } from "../layers/layer.ts";
import type { Plan, Step } from "./plan.ts";

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
