/**
 * Parameters that are tied: two names for the same values, whose gradients are added.
 *
 * @module
 */

import type { ModelProgram, StageProgram, StageState, Tie } from "../../../kernels/mod.ts";
import type { TieEnd } from "../../commit/copy_sync.ts";
import { parameterNames } from "./stage_parameters.ts";

/** The ties whose parameters are trained: the gradients of both ends are added. */
export function trainedTies({ ties, parameters }: ModelProgram): readonly Tie[] {
  const frozen = new Set(parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name));
  return ties.filter(([canonical]) => !frozen.has(canonical));
}

/** A state without the weights and moments of aliases, as checkpoints keep it. */
export function withoutAliases(
  { weights, moments }: StageState,
  ties: ModelProgram["ties"],
): StageState {
  const aliases = ties.map(([, alias]) => alias);
  const keep = (values: ReadonlyMap<string, Float32Array>) =>
    new Map(
      [...values].filter(([key]) =>
        !aliases.some((alias) => key === alias || key.startsWith(`${alias}.`))
      ),
    );
  return { weights: keep(weights), moments: keep(moments) };
}

/** Both ends of every tie, by the stage that holds them. */
export function tieEnds(
  programs: readonly StageProgram[],
  ties: ModelProgram["ties"],
): TieEnd[][] {
  const stageOf = (name: string) =>
    programs.findIndex((program) => parameterNames(program).includes(name));
  const ends = ties.flatMap(([canonical, alias]) => {
    const [first, second] = [canonical, alias].map((name) => ({ name, stage: stageOf(name) }));
    return [
      { ...first!, isAlias: false, other: second! },
      { ...second!, isAlias: true, other: first! },
    ];
  });
  return programs.map((_, stage) => ends.filter((end) => end.stage === stage));
}
