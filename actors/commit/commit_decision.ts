/**
 * The commit of a step, as the supervisor decides it.
 *
 * [Note: the commit of a step] No worker touches a weight before every copy of every stage has
 * voted: "my gradients are finite, and so small that no sum of copies can overflow". So a step is
 * taken in all buckets of all workers or in none, and nothing is ever undone. (AxoNN's own code
 * looks for an overflow bucket by bucket, when earlier buckets have been stepped.)
 *
 * @module
 */

import { clipFactor, type GradientSquares } from "./gradient_norm.ts";

/** What a decision depends on, beside votes and sums. */
export interface DecisionOptions {
  /** For each stage the number of its copies. */
  readonly copies: readonly number[];
  /** Workers, each of which tells of its sums once. */
  readonly workers: number;
  /** Stages whose all-reduce starts while other stages still run backward. */
  readonly eagerStages: readonly number[];
  /** The most that the norm of all gradients may be; more is scaled down. */
  readonly clip?: number | undefined;
}

/** What all copies agree on. */
export type Verdict =
  | { readonly isCommitted: true; readonly gradientScale: number }
  | { readonly isCommitted: false };

/** The decision on one step. */
export interface CommitDecision {
  /** A copy of a stage has all its gradients. */
  vote(stage: number, isSafe: boolean): void;
  /** A worker has the sums of all copies; sums of squares by parameter. */
  addSquares(squares: GradientSquares): void;
  /** Whether every copy has voted. */
  hasAllVotes(): boolean;
  /** The stages whose all-reduce is to start now; each is told once. */
  startReducing(): number[];
  /** The sums of squares that are there. */
  readonly squares: GradientSquares;
  /**
   * What is decided when all votes are in; nothing while the norm is wanted and not known.
   *
   * @param isLossFinite whether all losses are finite.
   */
  verdict(isLossFinite: boolean, lossScale: number): Verdict | undefined;
}

/** Opens the decision on a step. */
export function openCommitDecision(
  { copies, workers, eagerStages, clip }: DecisionOptions,
): CommitDecision {
  /** Copies that have not voted, by stage. */
  const votesMissing = [...copies], reducing = new Set<number>();
  const squares = new Map<string, number>();
  let isSafe = true, sumsMissing = workers;
  const hasAllVotes = () => votesMissing.every((missing) => missing === 0);
  return {
    vote(stage, isSafeThere) {
      votesMissing[stage]!--;
      isSafe &&= isSafeThere;
    },
    addSquares(more) {
      for (const [name, sum] of more) squares.set(name, sum);
      sumsMissing--;
    },
    hasAllVotes,
    startReducing() {
      if (!isSafe) return [];
      const isEnd = hasAllVotes();
      const stages = [...votesMissing.keys()].filter((stage) =>
        votesMissing[stage] === 0 && !reducing.has(stage) &&
        (isEnd || eagerStages.includes(stage))
      );
      for (const stage of stages) reducing.add(stage);
      return stages;
    },
    squares,
    verdict(isLossFinite, lossScale) {
      if (!isSafe || !isLossFinite) return { isCommitted: false };
      if (clip !== undefined && sumsMissing > 0) return undefined;
      return { isCommitted: true, gradientScale: clipFactor(clip, squares, lossScale) / lossScale };
    },
  };
}
