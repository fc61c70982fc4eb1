/**
 * Samples of different lengths, trained as they are, next to the same samples padded to the longest:
 * a text in samples whose lengths are log-uniform over a factor of four.
 *
 * @module
 */

import { train } from "../actors/run/train.ts";
import { watchResident } from "../console/train/memory_report.ts";
import { bytesTokenizer, gpt2, groupedOrder, loadText, tokenBatches } from "../kernels/mod.ts";
import { substream } from "../kernels/random.ts";
import { type Row, rowMaker } from "./report.ts";
import { growthRow, LATE } from "./steady.ts";
import { interleave, type Round } from "./timing.ts";
import { LEARNING_RATE, type Workload } from "./workload.ts";

const WORKLOAD: Workload = {
  config: { layers: 4, hidden: 128, heads: 4, seq: 256, vocab: 256 },
  microBatch: 4,
};

/** A smaller model, whose resident memory is compared. */
const TINY: Workload = { config: { ...WORKLOAD.config, layers: 2, hidden: 32 }, microBatch: 2 };

const MICRO_BATCHES = 8;

/** The ways to train samples. */
const WAYS = {
  padded: { inEighths: false, isGrouped: false },
  ungrouped: { inEighths: true, isGrouped: false },
  grouped: { inEighths: true, isGrouped: true },
};

type Name = keyof typeof WAYS;

const NAMES = Object.keys(WAYS) as Name[];

/** Trains without an end; yields the seconds of a predicted token of each step. */
async function* secondsOfTokens(name: Name, { config, microBatch } = WORKLOAD) {
  const { seq, vocab: vocabularySize } = config, { inEighths, isGrouped } = WAYS[name];
  const random = substream(1, "bench lengths"), lengths: number[] = [], shortest = seq / 4;
  const tokens = bytesTokenizer().encode(await loadText("moby-dick"));
  for (let sum = 0; sum < tokens.length - 2 * seq; sum += lengths.at(-1)!) {
    lengths.push(Math.round(shortest * (seq / shortest) ** ((random.next() >>> 0) / 2 ** 32)));
  }
  const documents = { lengths: Uint32Array.from(lengths), inEighths };
  const order = isGrouped
    ? groupedOrder(documents.lengths, microBatch, 1)
    : (row: number) => row % lengths.length;
  const cut = { tokens, documents, order, seq, vocabularySize, microBatch };
  const run = train({
    model: gpt2(config, microBatch),
    data: tokenBatches({ ...cut, microBatches: MICRO_BATCHES }),
    ...{ lengths: inEighths, steps: 1e6, microBatches: MICRO_BATCHES, workers: 2 },
    ...{ schedule: "message-driven", learningRate: LEARNING_RATE, device: "native" },
  });
  for await (const event of run) if (event.type === "step") yield 1 / event.tokensPerSecond;
}

/** Measures the ways in turns. */
async function measureWays(): Promise<Round<Name>[]> {
  const runs = NAMES.map((name) => [name, secondsOfTokens(name)] as const);
  const cases = runs.map(([name, run]) => {
    const next = async () => (await run.next()).value!;
    return [name, async () => 500 * (await next() + await next())];
  });
  try {
    // In the first rounds lengths are compiled.
    return await interleave<Name>(Object.fromEntries(cases), { rounds: 12, warmup: 4 });
  } finally {
    for (const [, run] of runs) await run.return();
  }
}

/** Returns the resident bytes at each step of a run of grouped samples. */
async function residentBytes(): Promise<number[]> {
  using watch = watchResident();
  const bytes: number[] = [], run = secondsOfTokens("grouped", TINY);
  while (bytes.length < LATE && !(await run.next()).done) bytes.push(watch.look().rssBytes);
  await run.return();
  return bytes;
}

/** Measures tokens a second, and memory. */
export async function lengthsBench(): Promise<Row[]> {
  const row = rowMaker(await measureWays());
  return [
    ...NAMES.map((name) => row(name, "tokens/s", (ms) => 1000 / ms[name])),
    row("ungrouped ÷ padded", "×", (ms) => ms.padded / ms.ungrouped),
    row("grouped ÷ padded", "×", (ms) => ms.padded / ms.grouped, { target: { atLeast: 1.5 } }),
    growthRow("resident after", await residentBytes()),
  ];
}
