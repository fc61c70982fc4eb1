/**
 * Whole optimizer steps of the native device in turns with PyTorch's, from the same weights on the
 * same tokens, each with as many workers as the other has threads.
 *
 * @module
 */

import { type BenchEngine, openBenchEngine } from "../support/engine.ts";
import type { Row } from "../support/row.ts";
import { interleave, type Round, type RoundOptions, spreadOf } from "../support/timing.ts";
import { tokensOf, type Workload } from "../support/workload.ts";
import { openTorch, type Torch } from "./torch.ts";

/** A comparison for each number of workers. */
export interface TorchRace {
  readonly workload: Workload;
  /** Micro-batches of a step, N. */
  readonly microBatches: number;
  readonly rounds: RoundOptions;
  readonly contests: readonly TorchContest[];
}

/** Workers against as many threads. */
export interface TorchContest {
  readonly workers: number;
  readonly schedule: string;
  /** How many times as fast Troupe must be. */
  readonly target: number;
}

/** A contest that is under way. */
interface Opened extends TorchContest {
  readonly engine: BenchEngine;
  readonly torch: Torch;
  /** Mean losses of the steps of each. */
  readonly losses: { readonly ours: number[]; readonly theirs: number[] };
}

const WORDS = ["", "one", "two", "three", "four"];

/** `1 worker` in words. */
const counted = (count: number, what: string) =>
  `${WORDS[count] ?? count} ${what}${count === 1 ? "" : "s"}`;

const oursOf = ({ workers }: TorchContest) => `native, ${counted(workers, "worker")}`;
const theirsOf = ({ workers }: TorchContest) => `PyTorch, ${counted(workers, "thread")}`;

async function open(contest: TorchContest, race: TorchRace): Promise<Opened> {
  const { workload, microBatches } = race, { workers, schedule } = contest;
  // First the other one, which tries several ways: the larger models are not held beside that.
  const torch = await openTorch(workers, workload, microBatches);
  try {
    const engine = await openBenchEngine({
      device: "native",
      workers,
      microBatches,
      schedule,
      workload,
    });
    return { ...contest, engine, torch, losses: { ours: [], theirs: [] } };
  } catch (error) {
    await torch[Symbol.asyncDispose]();
    throw error;
  }
}

/** What runs in each round: a step of each. */
function casesOf(contest: Opened): [string, () => Promise<number | void>][] {
  const { engine, torch, losses: { ours, theirs } } = contest;
  return [
    [oursOf(contest), async () => void ours.push(await engine.step())],
    [theirsOf(contest), async () => {
      const { ms, loss } = await torch.step();
      theirs.push(loss);
      return ms;
    }],
  ];
}

/** Runs the contests in the same rounds. @throws {Error} where there is no PyTorch. */
export async function raceTorch(race: TorchRace): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const opened: Opened[] = [];
  for (const contest of race.contests) {
    const one = await open(contest, race);
    stack.use(one.engine);
    stack.use(one.torch);
    opened.push(one);
  }
  const rounds = await interleave(Object.fromEntries(opened.flatMap(casesOf)), {
    ...race.rounds,
    isAlone: false,
  });
  const rows = opened.map((contest) => rowsOf(contest, race, rounds));
  return [...rows.flatMap(({ rates }) => rates), ...rows.map(({ ratio }) => ratio)];
}

function rowsOf(contest: Opened, race: TorchRace, rounds: readonly Round<string>[]) {
  const { losses: { ours, theirs }, torch, schedule, target, workers } = contest;
  const tokens = race.microBatches * tokensOf(race.workload);
  const apart = Math.max(...ours.map((loss, i) => Math.abs(loss - theirs[i]!)));
  const rate = (name: string, note: string): Row => ({
    name: `${name}: step`,
    unit: "tokens/s",
    measured: spreadOf(rounds, (ms) => tokens / (ms[name]! / 1000)),
    note,
  });
  const [mine, other] = [oursOf(contest), theirsOf(contest)];
  const rates = [
    rate(mine, workers === 1 ? "one thread" : `${schedule}, a thread each`),
    rate(other, `${torch.title}; ${torch.ways}`),
  ];
  const ratio: Row = {
    name: `${mine} ÷ ${other}`,
    unit: "×",
    measured: spreadOf(rounds, (ms) => ms[other]! / ms[mine]!),
    target: { atLeast: target },
    note: `losses of ${ours.length} steps differ by at most ${apart.toExponential(1)}`,
  };
  return { rates, ratio };
}
