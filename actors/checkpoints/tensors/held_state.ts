/**
 * Weights and moments that somebody else holds, read piece by piece: nobody needs room for a second
 * copy of them.
 *
 * [Note: credit] A piece is asked for when the one before it has come, and no sooner than whoever
 * reads wants that one. So two pieces are under way at the most: one that is looked at and one that
 * is fetched meanwhile, however slow the reader is.
 *
 * @module
 */

import {
  elementCount,
  type StageState,
  type StateOf,
  type TensorPart,
} from "../../../kernels/mod.ts";
import type { FileKind, Shapes } from "../checkpoint_format.ts";

/** Elements of a piece, 4 MiB: what a message costs is nothing beside it. */
export const PIECE_ELEMENTS = 1 << 20;

/** Weights and moments that lie elsewhere. */
export interface HeldState {
  /** The sizes of each weight and of each moment, by name. */
  readonly shapes: Readonly<Record<FileKind, Shapes>>;
  /** Who holds a tensor: parts are read together where one holds them all. */
  holderOf(name: string): number;
  /** Reads parts, one after the other into one array. */
  read(parts: readonly TensorPart[]): Promise<Float32Array>;
}

/** Some elements of a tensor. */
export interface Piece {
  /** The tensor. */
  readonly name: string;
  /** Its next elements. */
  readonly values: Float32Array;
  /** Whether they are its last. */
  readonly isLast: boolean;
}

/** What is read at once. */
interface Reading {
  readonly parts: readonly (TensorPart & { readonly isLast: boolean })[];
  readonly values: Promise<Float32Array>;
}

/**
 * Reads tensors of one kind from their beginning to their end, one after the other.
 *
 * @param names in which order.
 */
export async function* readPieces(
  state: HeldState,
  kind: FileKind,
  names: readonly string[],
): AsyncGenerator<Piece, void> {
  const cuts = cutParts(state, kind, names);
  const begin = (): Reading | undefined => {
    const { value: parts } = cuts.next();
    if (!parts) return undefined;
    const values = state.read(parts);
    // A failure is met when the values are wanted.
    values.catch(() => {});
    return { parts, values };
  };
  let next = begin();
  try {
    while (next) {
      const { parts } = next, values = await next.values;
      next = begin();
      let at = 0;
      for (const { name, from, to, isLast } of parts) {
        yield { name, values: values.subarray(at, at += to - from), isLast };
      }
    }
  } finally {
    // Whoever holds the tensors can be asked for others when this is over.
    await next?.values.catch(() => {});
  }
}

/** Cuts tensors into what is read at once: of one holder, and not too much. */
function* cutParts(
  { shapes, holderOf }: HeldState,
  kind: FileKind,
  names: readonly string[],
): Generator<Reading["parts"], undefined> {
  let parts: Reading["parts"][number][] = [], room = PIECE_ELEMENTS;
  for (const name of names) {
    const count = elementCount(shapes[kind].get(name)!);
    if (parts[0] && holderOf(parts[0].name) !== holderOf(name)) room = 0;
    for (let from = 0, to; from === 0 || from < count; from = to) {
      if (room === 0) {
        yield parts;
        parts = [];
        room = PIECE_ELEMENTS;
      }
      to = Math.min(count, from + room);
      room -= to - from;
      parts.push({ name, from, to, isLast: to === count });
      if (count === 0) break;
    }
  }
  if (parts.length > 0) yield parts;
  return undefined;
}

/** The parameter of a moment, `h.0.w` of `h.0.w.exp_avg`. */
export const parameterOf = (moment: string): string => moment.slice(0, moment.lastIndexOf("."));

/** A state that is here already, as one that is read. @param shapes those of its parameters. */
export function heldValues({ weights, moments }: StageState, shapes: Shapes): HeldState {
  const all = new Map([...weights, ...moments]), names = [...all.keys()];
  return {
    shapes: {
      model: new Map(Array.from(weights.keys(), (name) => [name, shapes.get(name)!])),
      optimizer: new Map(
        Array.from(moments.keys(), (name) => [name, shapes.get(parameterOf(name))!]),
      ),
    },
    holderOf: (name) => names.indexOf(name),
    read([part]) {
      const { name, from, to } = part!;
      return Promise.resolve(all.get(name)!.subarray(from, to));
    },
  };
}

/** All of a state, in memory: for those that are small. @param into arrays that are used again. */
export async function gatherState(
  state: HeldState,
  into: StateOf<Float32Array> = { weights: new Map(), moments: new Map() },
): Promise<StageState> {
  const gather = async (kind: FileKind, known: ReadonlyMap<string, Float32Array>) => {
    const shapes = state.shapes[kind], values = new Map<string, Float32Array>();
    for (const [name, shape] of shapes) {
      values.set(name, known.get(name) ?? new Float32Array(elementCount(shape)));
    }
    let at = 0;
    for await (
      const { name, values: piece, isLast } of readPieces(state, kind, [...shapes.keys()])
    ) {
      values.get(name)!.set(piece, at);
      at = isLast ? 0 : at + piece.length;
    }
    return values;
  };
  return {
    weights: await gather("model", into.weights),
    moments: await gather("optimizer", into.moments),
  };
}
