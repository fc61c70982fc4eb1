/**
 * The verification of steps: results that are in doubt are taken again, and a worker whose results are
 * wrong twice is excluded.
 *
 * [Note: the wrong copy] Steps are deterministic: a worker that computes correctly has the same
 * digests whenever a step is taken. So among the digests of a stage in all tries of a step, the most
 * frequent one is right, also if there are two copies only.
 *
 * @module
 */

import { unequalCopies } from "../gradients/digests.ts";
import type { StageCopy } from "../pipeline/layout.ts";
import type { StepOutcome } from "../pipeline/step.ts";

/** Tries of a step. */
const TRIES_MAX = 3;

/** Wrong results of a worker, after which it is excluded. */
const WRONG_MAX = 2;

/** Steps between two comparisons of weights and moments. */
export const COMPARE_EVERY = 4;

/** Ports of a verifier. */
interface VerifierOptions {
  /** For each stage, its copies. */
  readonly copies: readonly (readonly StageCopy[])[];
  /** Ends a worker, so that the run moves to the others; rejects. */
  readonly exclude: (worker: number, why: string) => Promise<unknown>;
  /** Reports in words that a step is taken again. */
  readonly onDoubt?: ((line: string) => void) | undefined;
}

/** Verifies the steps of an engine. */
export class Verifier {
  readonly #options: VerifierOptions;
  /** Wrong results in earlier steps, by worker. */
  #wrong = new Map<number, number>();

  /** Begins without wrong results. */
  constructor(options: VerifierOptions) {
    this.#options = options;
  }

  /**
   * Takes a step until its results are not in doubt.
   *
   * @throws {Error} after three tries.
   */
  async step(step: number, take: () => Promise<StepOutcome>): Promise<StepOutcome> {
    const tries: StepOutcome[] = [], before = this.#wrong;
    for (;;) {
      for (const [worker, count] of this.#wrong) {
        const why = `worker-${worker} is excluded: its results were wrong ${count} times`;
        if (count >= WRONG_MAX) await this.#options.exclude(worker, why);
      }
      const outcome = await take(), doubts = doubtsOf(outcome);
      tries.push(outcome);
      this.#wrong = this.#count(before, tries);
      if (doubts.length === 0) return outcome;
      const what = `step ${step}: ${doubts.join("; ")}`;
      if (tries.length === TRIES_MAX) {
        throw new Error(`Cannot take ${what}, in ${TRIES_MAX} tries`);
      }
      this.#options.onDoubt?.(`${what}; the step is taken again`);
    }
  }

  /** Adds the tries of a step in which each worker was wrong. */
  #count(before: ReadonlyMap<number, number>, tries: readonly StepOutcome[]): Map<number, number> {
    const counts = new Map(before), isRight = rightDigests(tries);
    for (const { digests = [], doubts = [] } of tries) {
      const wrong = digests.filter(({ stage, digest }) => isRight(stage, digest) === false)
        .map(({ stage, rank }) => this.#options.copies[stage]![rank]!.worker);
      for (const worker of new Set([...wrong, ...doubts.flatMap(({ worker = [] }) => worker)])) {
        counts.set(worker, 1 + (counts.get(worker) ?? 0));
      }
    }
    return counts;
  }
}

/** Describes the errors that were found in a step that was not committed. */
function doubtsOf({ digests = [], doubts = [] }: StepOutcome): string[] {
  const stages = new Set(unequalCopies(digests).map(({ stage }) => stage));
  const unequal = Array.from(stages, (stage) => `the copies of stage ${stage} have unequal sums`);
  return [...new Set([...unequal, ...doubts.map(({ what }) => what)])];
}

/** Returns whether a digest is the most frequent of its stage; undefined if several are. */
function rightDigests(tries: readonly StepOutcome[]) {
  const all = Map.groupBy(tries.flatMap(({ digests = [] }) => digests), ({ stage }) => stage);
  const right = new Map<number, number>();
  for (const [stage, digests] of all) {
    const counts = [...Map.groupBy(digests, ({ digest }) => digest)]
      .map(([digest, { length }]) => [digest, length] as const).sort(([, a], [, b]) => b - a);
    if (counts[0]![1] > (counts[1]?.[1] ?? 0)) right.set(stage, counts[0]![0]);
  }
  return (stage: number, digest: number): boolean | undefined =>
    right.has(stage) ? right.get(stage) === digest : undefined;
}
