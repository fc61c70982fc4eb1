/**
 * What a worker alone has of more threads: how much faster its step is on them, beside how much
 * faster the product is.
 *
 * @module
 */

import { type Conversation, type Row, talkTo } from "./report.ts";
import { interleave, spreadOf } from "./timing.ts";

/** How much of the product's speed-up the step must have. */
const TARGET = { atLeast: 0.8 } as const;

/** From one thread to all cores: 1, 2, 4 … and the last. */
function threadCounts(): number[] {
  const cores = navigator.hardwareConcurrency, counts: number[] = [];
  for (let count = 1; count < cores; count *= 2) counts.push(count);
  return [...counts, cores];
}

/** Starts a program that computes on so many threads. */
function start(threads: number): Conversation {
  const program = new URL("./threads_job.ts", import.meta.url).href;
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", program, `${threads}`],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  return talkTo(child);
}

/** Measures each number of threads, in a process each. */
export async function threadsBench(): Promise<Row[]> {
  const counts = threadCounts(), jobs = new Map(counts.map((count) => [count, start(count)]));
  try {
    const ask = (count: number, what: string) => async () =>
      (await jobs.get(count)!.ask<{ ms: number }>(what)).ms;
    const cases = Object.fromEntries(
      counts.flatMap((count) =>
        ["step", "product"].map((one) => [`${one} ${count}`, ask(count, one)])
      ),
    );
    const rounds = await interleave(cases, { rounds: 11, isAlone: false });
    const faster = (ms: Readonly<Record<string, number>>, what: string, count: number) =>
      ms[`${what} 1`]! / ms[`${what} ${count}`]!;
    const row = (
      name: string,
      unit: string,
      figure: (ms: Record<string, number>) => number,
    ): Row => ({ name, unit, measured: spreadOf(rounds, figure) });
    const more = counts.filter((count) => count > 1);
    return [
      ...counts.map((count) =>
        row(`native, one worker, threads ${count}: step`, "ms", (ms) => ms[`step ${count}`]!)
      ),
      ...more.flatMap((count): Row[] => [
        row(`  step on ${count} threads ÷ on 1`, "×", (ms) => faster(ms, "step", count)),
        row(`  MatMul 1024³ on ${count} threads ÷ on 1`, "×", (ms) => faster(ms, "product", count)),
        {
          ...row(
            `  … of that`,
            "",
            (ms) => faster(ms, "step", count) / faster(ms, "product", count),
          ),
          // `--threads auto` gives a worker alone all cores.
          ...count === counts.at(-1) && { target: TARGET },
        },
      ]),
    ];
  } finally {
    for (const job of jobs.values()) await job.close();
  }
}
