/**
 * The layers of a stage as plain data, so that no code travels to the workers.
 *
 * @module
 */

import type { LayerProgram } from "./layer_program.ts";
import type { Slicing } from "../layers/batch.ts";
import type { Precision } from "../layers/precision.ts";

/**
 * A value given by name that crosses the border of a stage. Over a skip edge it goes from the stage
 * that makes it to each that uses it; its gradient goes from the last of them to the one before,
 * which adds its own, and so on to the maker.
 */
export interface StageSkip {
  /** Its key, `skip.NAME`. */
  readonly key: string;
  /** The stage that it comes from; absent where this stage makes it. */
  readonly from?: number;
  /** The stages that it goes to; none where another stage makes it. */
  readonly to: readonly number[];
  /** The stage that the gradient of later uses comes from; absent where there is none. */
  readonly gradientFrom?: number;
  /** The stage that the gradient goes to; absent where this stage makes it, or it has none. */
  readonly gradientTo?: number;
}

/** The layers of a stage as plain data: what a worker needs to compute it. */
export interface StageProgram {
  /** Distinct layer programs. */
  readonly programs: readonly LayerProgram[];
  /**
   * The layers in order: which program each runs, the prefix of its parameters' names, and the block
   * that it is a part of.
   */
  readonly layers: readonly {
    readonly name: string;
    readonly block?: string;
    readonly prefix: string;
    readonly program: number;
    /** Of a sequence in slices the program for each of them; `program` is that of the first. */
    readonly slices?: readonly number[];
  }[];
  /** How sequences are cut; absent where they are not. */
  readonly slicing?: Slicing;
  /** What crosses its border beside what it is handed by the stage before, and hands on. */
  readonly skips?: readonly StageSkip[];
}

/** A layer, the prefix of its parameters' names, and the block that it is a part of. */
export interface NamedProgram {
  /** What a reader sees, and what keys its dropout. */
  readonly name: string;
  /** The block that it is a part of. */
  readonly block?: string;
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /** What it computes. */
  readonly program: LayerProgram;
}

/** A parameter by its full name. */
export interface NamedParameter {
  readonly name: string;
  readonly shape: readonly number[];
  readonly frozen: boolean;
}

/** The parameters of some layers by full name. */
export function parametersOf(layers: readonly NamedProgram[]): readonly NamedParameter[] {
  return layers.flatMap(({ prefix, program: { parameters } }) =>
    parameters.map(({ name, shape, frozen = false }) => ({ name: prefix + name, shape, frozen }))
  );
}

/** The layers of a stage, each with its program; of a sequence in slices with that of the first. */
export const layersOf = (stage: StageProgram): NamedProgram[] => slicesOf(stage)[0]!;

/** For each slice of a sequence the layers of a stage; of a whole sequence once. */
export const slicesOf = ({ programs, layers, slicing }: StageProgram): NamedProgram[][] =>
  Array.from(
    { length: slicing?.slices ?? 1 },
    (_, slice) =>
      layers.map(({ program, slices, ...named }) => ({
        ...named,
        program: programs[slices?.[slice] ?? program]!,
      })),
  );

/** The type in which a stage stores. */
export const precisionOf = (layers: readonly NamedProgram[]): Precision =>
  layers[0]?.program.precision ?? "fp32";
