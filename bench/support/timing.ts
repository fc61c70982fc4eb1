/**
 * Times things that are to be compared, interleaved.
 *
 * [Note: ratios on a machine that is never quiet] Clock rates and neighbours change from second to
 * second, so two figures taken one after the other differ although nothing else does. What is
 * compared runs in the same rounds, every other round backwards, and a ratio is taken within each
 * round. A round that other programs disturb is run again, within a bound; the least disturbed
 * rounds count. Their median is the figure; the lowest and the highest say how far to trust it.
 *
 * @module
 */

import { watchOthers } from "./load.ts";

/** The median of some rounds, with the lowest and the highest. */
export interface Spread {
  readonly median: number;
  readonly low: number;
  readonly high: number;
}

/** Every case, run once. */
export interface Round<Name extends string> {
  /** Milliseconds of each case. */
  readonly ms: Readonly<Record<Name, number>>;
  /** Cores that other programs kept busy meanwhile, where that is known. */
  readonly otherCores: number | undefined;
}

/** How often things run. */
export interface RoundOptions {
  /** Rounds that count. */
  readonly rounds: number;
  /** Rounds before them that do not. Default 2. */
  readonly warmup?: number;
  /** Whether other programs are a disturbance, not a part of what is measured. Default true. */
  readonly isAlone?: boolean;
}

/** Other programs may keep this much of a core busy in a quiet round. */
const QUIET_CORES = 0.1;

/** The most rounds that anything runs: fewer are a first look. */
let roundsMax = Infinity;

/** Lets nothing run more than so many rounds that count. */
export function limitRounds(most: number): void {
  roundsMax = most;
}

/** Of each round that is to count, so many are run at most. */
const TRIES = 2;

/**
 * Runs every case once a round.
 *
 * @param cases what to run; a case that returns a number reports its own milliseconds.
 */
export async function interleave<Name extends string>(
  cases: Readonly<Record<Name, () => Promise<number | void>>>,
  options: RoundOptions,
): Promise<Round<Name>[]> {
  const { isAlone = true } = options, rounds = Math.min(options.rounds, roundsMax);
  const warmup = Math.min(options.warmup ?? 2, roundsMax);
  const names = Object.keys(cases) as Name[];
  const run = async (order: readonly Name[]): Promise<Round<Name>> => {
    const ms: Partial<Record<Name, number>> = {}, others = watchOthers();
    for (const name of order) {
      const start = performance.now();
      const own = await cases[name]();
      ms[name] = own ?? performance.now() - start;
    }
    return { ms: ms as Record<Name, number>, otherCores: isAlone ? others() : undefined };
  };
  for (let i = 0; i < warmup; i++) await run(names);
  const disturbance = ({ otherCores = 0 }: Round<Name>) => otherCores;
  const all: Round<Name>[] = [];
  let quiet = 0;
  while (quiet < rounds && all.length < rounds * TRIES) {
    const round = await run(all.length % 2 === 0 ? names : names.toReversed());
    if (disturbance(round) <= QUIET_CORES) quiet++;
    all.push(round);
  }
  return all.toSorted((a, b) => disturbance(a) - disturbance(b)).slice(0, rounds);
}

/** The spread of some figures. */
export function spread(values: readonly number[]): Spread {
  if (values.length === 0) throw new RangeError("Cannot take a median: there must be a round");
  const sorted = values.toSorted((a, b) => a - b), middle = (sorted.length - 1) / 2;
  const median = (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
  return { median, low: sorted[0]!, high: sorted.at(-1)! };
}

/** The spread of a figure that is computed within each round. */
export function spreadOf<Name extends string>(
  rounds: readonly Round<Name>[],
  figure: (ms: Round<Name>["ms"]) => number,
): Spread {
  return spread(rounds.map(({ ms }) => figure(ms)));
}
