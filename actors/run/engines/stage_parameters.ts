/**
 * The parameters of one stage by their full names, and its part of a model's state.
 *
 * @module
 */

import type { ParameterSpec, StageProgram, StateOf } from "../../../kernels/mod.ts";

/** The parameters of a stage under their full names. */
export function stageParameters({ layers, programs }: StageProgram): ParameterSpec[] {
  return layers.flatMap(({ prefix, program }) =>
    programs[program]!.parameters.map(({ name, ...spec }) => ({ ...spec, name: prefix + name }))
  );
}

/** Full names of a stage's parameters. */
export function parameterNames(program: StageProgram): string[] {
  return stageParameters(program).map(({ name }) => name);
}

/** The part of a model's state that belongs to a stage. */
export function stateOf<T>(program: StageProgram, state: StateOf<T>): StateOf<T> {
  const weights = new Map(
    parameterNames(program).flatMap((name) => {
      const values = state.weights.get(name);
      return values !== undefined ? [[name, values] as const] : [];
    }),
  );
  const moments = new Map(
    [...state.moments].filter(([key]) => weights.has(key.slice(0, key.lastIndexOf(".")))),
  );
  return { weights, moments };
}
