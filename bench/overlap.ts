/**
 * The all-reduce overlapped with the optimizer, over an emulated link: the curve over k of AxoNN's
 * Figure 8, one step as a picture, and Chimera's eager synchronisation against that at the end.
 *
 * @module
 */

import type { SyncStrategy } from "../actors/gradients/sync.ts";
import type { TracedAction } from "../actors/pipeline/step.ts";
import type { Engine } from "../actors/run/engine.ts";
import { openPipeline } from "../actors/run/pipeline.ts";
import { prepareRun } from "../actors/run/prepare.ts";
import { print } from "../console/terminal.ts";
import { gpt2 } from "../kernels/mod.ts";
import type { Row } from "./report.ts";
import { interleave, spread, spreadOf } from "./timing.ts";
import { benchBatches, SMALL, stepRequest } from "./workload.ts";

/** Much weight for little work, so that the end of a step is a good part of it. */
const MODEL = { ...SMALL.config, hidden: 384, vocab: 1024, seq: 32 };
const SAMPLES = 1;

/** A slow network: the all-reduce of 36 MB takes about as long as the optimizer. */
const LINK = { latencyUs: 100, gigabytesPerSecond: 0.5 };

/** Elements of a bucket, and buckets of a chunk; the last is all: nothing overlaps. */
const BUCKET_SIZE = 262_144;
const COARSENINGS = [1, 2, 3, 4, 8, 16] as const;
const NO_OVERLAP = 1_000_000;

interface OpenRun {
  readonly engine: Engine;
  readonly step: () => Promise<readonly (readonly TracedAction[])[]>;
}

async function openRun(
  options: { coarsening: number; sync: SyncStrategy; workers: number; schedule: string },
): Promise<OpenRun> {
  const { workers } = options, microBatches = 2 * workers;
  const prepared = await prepareRun({
    model: gpt2(MODEL, SAMPLES),
    data: [],
    steps: 1,
    microBatches,
    replicas: workers === 1 ? 2 : 1,
    device: "native",
    bucketSize: BUCKET_SIZE,
    link: LINK,
    trace: true,
    ...options,
  });
  const tokens = SAMPLES * MODEL.seq;
  const micro = benchBatches(prepared.microBatches).map(({ ids, targets }) => ({
    ids: ids.slice(0, tokens),
    targets: targets.slice(0, tokens),
  }));
  const engine = await openPipeline(prepared, "worker");
  let step = 0;
  return { engine, step: async () => (await engine.step(stepRequest(++step, micro))).traces };
}

/** What a step spends where, on one worker, in milliseconds. */
function shares(
  trace: readonly TracedAction[],
): { step: number; waits: number; optimizer: number } {
  const start = trace[0]!.start, end = trace.at(-1)!.end;
  const busy = (isOf: (name: string) => boolean) =>
    trace.filter(({ name }) => isOf(name)).reduce((sum, one) => sum + one.end - one.start, 0);
  const reduces = trace.filter(({ name }) => name.startsWith("reduce"));
  const span = reduces.length === 0 ? 0 : reduces.at(-1)!.end - reduces[0]!.start;
  const optimizer = busy((name) => name === "optimizer");
  return { step: end - start, waits: span - busy((name) => name.startsWith("reduce")), optimizer };
}

/** One step as a line for each worker: F, B, r for a part of the all-reduce, o for the optimizer. */
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

async function coarseningRows(): Promise<Row[]> {
  const names = [...COARSENINGS.map((k) => `k = ${k}`), "no overlap"];
  const runs = new Map<string, OpenRun>();
  try {
    for (const [i, name] of names.entries()) {
      const coarsening = COARSENINGS[i] ?? NO_OVERLAP;
      runs.set(name, await openRun({ coarsening, sync: "end", workers: 1, schedule: "1f1b" }));
    }
    const timed = (name: string) => async () => void await runs.get(name)!.step();
    const rounds = await interleave(
      Object.fromEntries(names.map((name) => [name, timed(name)])),
      { rounds: 9 },
    );
    const apart = shares((await runs.get("no overlap")!.step())[0]!);
    const percent = (part: number) => `${(100 * part / apart.step).toFixed(0)} % of a step`;
    for (const name of ["k = 2", "no overlap"]) {
      print(`  one step, ${name} (r all-reduce, o optimizer, · waiting):`);
      print(picture(await runs.get(name)!.step(), 88));
    }
    const ratio = (name: string) => spreadOf(rounds, (ms) => 100 * ms[name]! / ms["no overlap"]!);
    return [
      ...names.map((name): Row => ({
        name: `step, ${name}`,
        unit: "ms",
        measured: spreadOf(rounds, (ms) => ms[name]!),
        ...name === "no overlap" && {
          note: `waits for the all-reduce ${percent(apart.waits)}, optimizer ${
            percent(apart.optimizer)
          }`,
        },
      })),
      ...COARSENINGS.map((k): Row => ({
        name: `  k = ${k} ÷ no overlap`,
        unit: "%",
        measured: ratio(`k = ${k}`),
        ...k >= 2 && k <= 4 && { target: { atMost: 100 } },
      })),
    ];
  } finally {
    for (const { engine } of runs.values()) await engine.close();
  }
}

async function syncRows(): Promise<Row[]> {
  const strategies = ["end", "eager", "eager-opt"] as const, runs = new Map<string, OpenRun>();
  try {
    for (const sync of strategies) {
      runs.set(sync, await openRun({ coarsening: 4, sync, workers: 4, schedule: "chimera" }));
    }
    const timed = (sync: string) => async () => void await runs.get(sync)!.step();
    const rounds = await interleave(
      { end: timed("end"), eager: timed("eager"), "eager-opt": timed("eager-opt") },
      { rounds: 9 },
    );
    return [
      ...strategies.map((sync): Row => ({
        name: `chimera D = 4, --sync ${sync}`,
        unit: "ms",
        measured: spreadOf(rounds, (ms) => ms[sync]),
      })),
      {
        name: "eager-opt ÷ end",
        unit: "%",
        measured: spread(rounds.map(({ ms }) => 100 * ms["eager-opt"] / ms.end)),
        target: { atMost: 103 },
      },
    ];
  } finally {
    for (const { engine } of runs.values()) await engine.close();
  }
}

/** Measures both. */
export async function overlapBench(): Promise<Row[]> {
  return [...await coarseningRows(), ...await syncRows()];
}
