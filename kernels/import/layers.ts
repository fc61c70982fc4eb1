/**
 * The layers of a file that is cut: what each hands on, gives and takes.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import type { AnyLayer, Handed, LayerGraph, Tie } from "../layers/layer.ts";
import { addNode } from "./add_node.ts";
import type { Cut } from "./cut.ts";
import type { Plan, Step } from "./plan.ts";
import { openSources, type Sources } from "./sources.ts";

/** The layers of a plan, and which of their parameters are one. */
export interface CutLayers {
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
