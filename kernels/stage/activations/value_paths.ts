/**
 * The values that pass between the layers of a stage and over its borders: who makes each, who reads
 * it, and where its gradient comes from and goes to.
 *
 * @module
 */

import { inputsOf, isSkip, type LayerProgram, outputsOf } from "../../compile/layer_program.ts";
import { layersOf, type StageProgram, type StageSkip } from "../../compile/stage_program.ts";
import type { TensorSpec } from "../../layers/layer.ts";
import { storageDtype } from "../../layers/precision.ts";

/** A value that passes between layers, or over a border of the stage. */
export interface ValuePath {
  /** What it is, by its key. */
  readonly spec: TensorSpec;
  /** The layer that makes it; undefined where it comes from another stage. */
  readonly maker: number | undefined;
  /** The layers that read it. */
  readonly users: readonly number[];
  /** Whether it leaves for another stage, or is the loss. */
  readonly leaves: boolean;
  /** Of what a layer hands to the next one, the index of that; of all others undefined. */
  readonly boundary?: number;
  /** Its gradient, where it has one. */
  readonly gradient?: {
    readonly spec: TensorSpec;
    /** Whether it, or that of later uses, comes from another stage. */
    readonly arrives: boolean;
    /** Whether it goes to another stage. */
    readonly leaves: boolean;
  };
}

/** The paths of a stage: what is handed on in the order of the layers, then what is given by name. */
export function valuePaths(
  programs: readonly LayerProgram[],
  skips: readonly StageSkip[] = [],
): ValuePath[] {
  return [...handedPaths(programs), ...skipPaths(programs, skips)];
}

/** What crosses the border of a stage, by key. */
export interface StageBorder {
  /** What other stages send. */
  readonly inputs: readonly TensorSpec[];
  /** What goes to other stages, or the loss. */
  readonly outputs: readonly TensorSpec[];
  /** The gradients that other stages send. */
  readonly arriving: readonly TensorSpec[];
  /** The gradients that go to other stages. */
  readonly leaving: readonly TensorSpec[];
}

/**
 * What crosses the border of a stage; of a sequence in slices, for one of them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { compileModel, cutIntoStages, mlp, stageBorder } from "@troupe/troupe/kernels";
 *
 * const model = mlp({ inputs: 4, hidden: 8, layers: 1, classes: 2 }, 3);
 * const [first] = cutIntoStages(compileModel(model, "none"), 2);
 * const { inputs, outputs } = stageBorder(first!);
 * assert.deepEqual(inputs, []);
 * assert.deepEqual(outputs, [{ name: "x", dtype: "f32", shape: [3, 8] }]);
 * ```
 */
export function stageBorder(stage: StageProgram): StageBorder {
  const paths = valuePaths(layersOf(stage).map(({ program }) => program), stage.skips);
  const plain = ({ name, dtype, shape }: TensorSpec): TensorSpec => ({ name, dtype, shape });
  const gradients = paths.flatMap(({ gradient }) => gradient ? [gradient] : []);
  return {
    inputs: paths.filter(({ maker }) => maker === undefined).map(({ spec }) => plain(spec)),
    outputs: paths.filter(({ leaves }) => leaves).map(({ spec }) => plain(spec)),
    arriving: gradients.filter(({ arrives }) => arrives).map(({ spec }) => plain(spec)),
    leaving: gradients.filter(({ leaves }) => leaves).map(({ spec }) => plain(spec)),
  };
}

function handedPaths(programs: readonly LayerProgram[]): ValuePath[] {
  const end = programs.length, { isLoss } = programs.at(-1)!;
  return Array.from({ length: end + 1 }, (_, boundary) => boundary).flatMap((boundary) => {
    const specs = boundary === 0
      ? inputsOf(programs[0]!).map(({ gradient, ...spec }) => ({
        ...spec,
        hasGradient: !!gradient,
      }))
      : outputsOf(programs[boundary - 1]!);
    return specs.filter(({ name }) => !isSkip(name)).map(({ hasGradient, ...spec }): ValuePath => {
      const path = {
        spec,
        maker: boundary === 0 ? undefined : boundary - 1,
        users: boundary === end ? [] : [boundary],
        leaves: boundary === end,
        boundary,
      };
      if (!hasGradient || isLoss && boundary === end) return path;
      const gradient = gradientOf(spec, programs);
      return {
        ...path,
        gradient: { spec: gradient, arrives: boundary === end, leaves: boundary === 0 },
      };
    });
  });
}

function skipPaths(programs: readonly LayerProgram[], skips: readonly StageSkip[]): ValuePath[] {
  const usersOf = (key: string) =>
    programs.flatMap((program, i) => inputsOf(program).some(({ name }) => name === key) ? [i] : []);
  const made = programs.flatMap((program, maker) =>
    outputsOf(program).filter(({ name }) => isSkip(name)).map((spec) => ({ ...spec, maker }))
  );
  const isMade = (key: string) => made.some(({ name }) => name === key);
  const taken = new Map(
    programs.flatMap(inputsOf)
      .filter(({ name }) => isSkip(name) && !isMade(name))
      .map(({ gradient, ...spec }) =>
        [spec.name, { ...spec, hasGradient: gradient !== undefined, maker: undefined }] as const
      ),
  );
  return [...made, ...taken.values()].map(({ maker, hasGradient, ...spec }): ValuePath => {
    const skip = skips.find(({ key }) => key === spec.name);
    const leaves = (skip?.to.length ?? 0) > 0;
    const path = { spec, maker, users: usersOf(spec.name), leaves };
    if (!hasGradient) return path;
    return {
      ...path,
      gradient: {
        spec: gradientOf(spec, programs),
        arrives: skip?.gradientFrom !== undefined,
        leaves: skip?.gradientTo !== undefined,
      },
    };
  });
}

const gradientOf = (spec: TensorSpec, programs: readonly LayerProgram[]): TensorSpec => ({
  ...spec,
  dtype: storageDtype(programs[0]!.precision),
});
