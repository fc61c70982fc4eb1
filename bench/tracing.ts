/**
 * The cost of a trace: steps with traces that are written to a file, next to steps without.
 *
 * @module
 */

import type { Plan, TrainEvent } from "../actors/options/train_events.ts";
import { cpuUsage } from "node:process";
import { TraceFile } from "../console/run_files/chrome_trace.ts";
import { type Row, rowMaker, valueRow } from "./report.ts";
import { interleave } from "./timing.ts";
import { type BenchEngine, openBenchEngine, type Workload } from "./workload.ts";

/** The default GPT of `troupe train`. */
const DEFAULT: Workload = {
  config: { layers: 4, hidden: 128, heads: 4, seq: 64, vocab: 256 },
  microBatch: 8,
};

const RUN = { device: "native", microBatches: 4, schedule: "message-driven", workload: DEFAULT };

/** Steps of each case in a round. */
const STEPS = 5;

/** Takes steps and writes their traces, like a run. */
function openWriter({ prepared, outcome }: BenchEngine, path: string) {
  const file = new TraceFile({ path, announce: () => {} });
  file.see({ type: "plan", plan: prepared.plan as Plan });
  const writeMs: number[] = [];
  let step = 0;
  const common = { loss: 1, gradNorm: 1, tokensPerSecond: 1, learningRate: 1, lossScale: 1 };
  return {
    writeMs,
    async step() {
      const { traces } = await outcome(), start = performance.now();
      const told = { ...common, predictions: 1, seconds: 1, traces };
      file.see({ type: "step", step: ++step, ...told } satisfies TrainEvent);
      writeMs.push(performance.now() - start);
    },
    [Symbol.dispose]: () => file[Symbol.dispose](),
  };
}

/** Measures both. */
export async function tracingBench(): Promise<Row[]> {
  const rows: Row[] = [], path = await Deno.makeTempFile({ prefix: "troupe-", suffix: ".json" });
  try {
    for (const workers of [2, 4]) {
      const run = { ...RUN, device: "native", workers } as const;
      await using plain = await openBenchEngine(run);
      await using traced = await openBenchEngine({ ...run, isTraced: true });
      using writer = openWriter(traced, path);
      const cpuMs = { plain: [] as number[], traced: [] as number[] };
      const times = (name: keyof typeof cpuMs, step: () => Promise<unknown>) => async () => {
        const before = cpuUsage();
        for (let i = 0; i < STEPS; i++) await step();
        const { user, system } = cpuUsage(before);
        cpuMs[name].push((user + system) / 1000);
      };
      const cases = { plain: times("plain", plain.outcome), traced: times("traced", writer.step) };
      const row = rowMaker(await interleave(cases, { rounds: 31 })), name = `${workers} workers`;
      const ofAllCores = cpuMs.traced.map((ms, i) => 100 * ms / cpuMs.plain[i]!);
      rows.push(
        row(`${name}, a step`, "ms", (ms) => ms.plain / STEPS),
        row(`${name}, traced ÷ plain`, "%", (ms) => 100 * ms.traced / ms.plain, {
          target: { atMost: 102 },
        }),
        valueRow(`${name}, traced ÷ plain, of all cores`, "%", ofAllCores),
        valueRow(`${name}, to write a step`, "ms", writer.writeMs),
      );
    }
    return rows;
  } finally {
    await Deno.remove(path);
  }
}
