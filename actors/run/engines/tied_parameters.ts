/**
 * Parameters that are tied: several names for the same values, whose gradients are added.
 *
 * @module
 */

import type { ModelProgram, StageProgram, StageState, Tie } from "../../../kernels/mod.ts";
import type { TieEnd } from "../../commit/copy_sync.ts";
import { parameterNames } from "./stage_parameters.ts";

/** The ties whose parameters are trained: the gradients of all that are tied are added. */
export function trainedTies({ ties, parameters }: ModelProgram): readonly Tie[] {
  const frozen = new Set(parameters.filter(({ isFrozen }) => isFrozen).map(({ name }) => name));
  return ties.filter(([canonical]) => !frozen.has(canonical));
}

/** Names of parameters that are one: first the canonical one, then its aliases in order. */
export function tieGroups(ties: readonly Tie[]): readonly (readonly string[])[] {
  const groups = Map.groupBy(ties, ([canonical]) => canonical);
  return [...groups].map(([canonical, own]) => [canonical, ...own.map(([, alias]) => alias)]);
}

/** The most parameters that are one: 1 where none are tied. */
export const mostTied = (ties: readonly Tie[]): number =>
  Math.max(1, ...tieGroups(ties).map(({ length }) => length));

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

/** All parameters that are tied to others, by the stage that holds them. */
export function tieEnds(
  programs: readonly StageProgram[],
  ties: ModelProgram["ties"],
): TieEnd[][] {
  const stageOf = (name: string) =>
    programs.findIndex((program) => parameterNames(program).includes(name));
  const ends = tieGroups(ties).flatMap((names) => {
    const members = names.map((name) => ({ name, stage: stageOf(name) }));
    return members.map((member, place) => ({ ...member, place, members }));
  });
  return programs.map((_, stage) => ends.filter((end) => end.stage === stage));
}
