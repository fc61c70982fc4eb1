/**
 * The all-reduce overlapped with the optimizer, over an emulated link: the curve over k of AxoNN's
 * Figure 8, a picture of one step, and Chimera's eager synchronization next to that at the end.
 *
 * @module
 */

import type { SyncStrategy } from "../actors/gradients/sync.ts";
import type { TracedAction } from "../actors/pipeline/step.ts";
import { print } from "../console/terminal.ts";
import { type Row, rowMaker } from "./report.ts";
import { interleave } from "./timing.ts";
import { type BenchEngine, openBenchEngine, SMALL } from "./workload.ts";

/** Many weights for little work: the end of a step is a large part of it. */
const WORKLOAD = { config: { ...SMALL.config, hidden: 384, seq: 32 }, microBatch: 1 };

/** A slow network: the all-reduce of 36 MB takes about as long as the optimizer. */
const LINK = { latencyUs: 100, gigabytesPerSecond: 0.5 };

/** Elements of a bucket, and buckets of a chunk; with all buckets nothing overlaps. */
const BUCKET_SIZE = 262_144;
const COARSENINGS = [1, 2, 3, 4, 8, 16] as const;
const NO_OVERLAP = 1_000_000;

interface RunOptions {
  readonly coarsening: number;
  readonly sync: SyncStrategy;
  readonly workers: number;
  readonly schedule: string;
}

function openRun({ workers, schedule, coarsening, sync }: RunOptions): Promise<BenchEngine> {
  const replicas = workers === 1 ? 2 : 1;
  return openBenchEngine({
    device: "native",
    workers,
    microBatches: 2 * workers,
    schedule,
    workload: WORKLOAD,
    isTraced: true,
    more: { replicas, bucketSize: BUCKET_SIZE, link: LINK, coarsening, sync },
  });
}

/** Returns the milliseconds of the parts of a step on one worker. */
function shares(trace: readonly TracedAction[]) {
  const start = trace[0]!.start, end = trace.at(-1)!.end;
  const busy = (isOf: (name: string) => boolean) =>
    trace.filter(({ name }) => isOf(name)).reduce((sum, one) => sum + one.end - one.start, 0);
  const reduces = trace.filter(({ name }) => name.startsWith("reduce"));
  const span = reduces.length === 0 ? 0 : reduces.at(-1)!.end - reduces[0]!.start;
  const optimizer = busy((name) => name === "optimizer");
  return { step: end - start, waits: span - busy((name) => name.startsWith("reduce")), optimizer };
}

/** Draws a step, a line for each worker: F, B, r for a part of the all-reduce, o for the optimizer. */
function picture(traces: readonly (readonly TracedAction[])[], columns: number): string {
  const all = traces.flat(), start = Math.min(...all.map((one) => one.start));
  const end = Math.max(...all.map((one) => one.end)), width = (end - start) / columns;
  return traces.map((trace, worker) => {
    const line = Array.from({ length: columns }, () => "·");
    for (const { name, start: from, end: to } of trace) {
      const letter = name === "optimizer"
        ? "o"
        : name.startsWith("reduce")
        ? "r"
        : name.match(/[FBIW]/)![0];
      const first = Math.floor((from - start) / width), last = Math.floor((to - start) / width);
      for (let i = first; i <= Math.min(last, columns - 1); i++) line[i] = letter;
    }
    return `    worker ${worker} ${line.join("")}`;
  }).join("\n");
}

/** Opens runs by name, and measures a step of each in turns. */
async function measure(options: Readonly<Record<string, RunOptions>>, stack: AsyncDisposableStack) {
  const runs: Record<string, BenchEngine> = {}, cases: Record<string, () => Promise<void>> = {};
  for (const [name, one] of Object.entries(options)) {
    const run = runs[name] = stack.use(await openRun(one));
    cases[name] = async () => void await run.step();
  }
  return { row: rowMaker(await interleave(cases, { rounds: 9 })), runs };
}

const COARSENED = { sync: "end", workers: 1, schedule: "1f1b" } as const;

/** Measures coarsenings of the all-reduce. */
async function coarseningRows(): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const options: Record<string, RunOptions> = {};
  for (const k of COARSENINGS) options[`k = ${k}`] = { ...COARSENED, coarsening: k };
  options["no overlap"] = { ...COARSENED, coarsening: NO_OVERLAP };
  const { row, runs } = await measure(options, stack);
  const traceOf = async (name: string) => (await runs[name]!.outcome()).traces;
  const apart = shares((await traceOf("no overlap"))[0]!);
  for (const name of ["k = 2", "no overlap"]) {
    print(`  one step, ${name} (r all-reduce, o optimizer, · waiting):`);
    print(picture(await traceOf(name), 88));
  }
  const percent = (part: number) => `${(100 * part / apart.step).toFixed(0)} % of a step`;
  const [waits, optimizer] = [percent(apart.waits), percent(apart.optimizer)];
  const note = `waits for the all-reduce ${waits}, optimizer ${optimizer}`;
  return [
    ...Object.keys(options).map((name) =>
      row(`step, ${name}`, "ms", (ms) => ms[name]!, name === "no overlap" ? { note } : {})
    ),
    ...COARSENINGS.map((k) =>
      row(`  k = ${k} ÷ no overlap`, "%", (ms) => 100 * ms[`k = ${k}`]! / ms["no overlap"]!, {
        ...k >= 2 && k <= 4 && { target: { atMost: 100 } },
      })
    ),
  ];
}

/** Measures the strategies of Chimera's synchronization. */
async function syncRows(): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const options: Record<string, RunOptions> = {};
  for (const sync of ["end", "eager", "eager-opt"] as const) {
    options[sync] = { coarsening: 4, sync, workers: 4, schedule: "chimera" };
  }
  const { row } = await measure(options, stack);
  return [
    ...Object.keys(options).map((sync) =>
      row(`chimera D = 4, --sync ${sync}`, "ms", (ms) => ms[sync]!)
    ),
    row("eager-opt ÷ end", "%", (ms) => 100 * ms["eager-opt"]! / ms.end!, {
      target: { atMost: 103 },
    }),
  ];
}

/** Measures both. */
export async function overlapBench(): Promise<Row[]> {
  return [...await coarseningRows(), ...await syncRows()];
}
