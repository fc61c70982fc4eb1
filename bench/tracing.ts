/**
 * What a trace costs: steps whose workers tell what they did, and are written to a file, against
 * steps of which nobody tells.
 *
 * @module
 */

import { cpuUsage } from "node:process";
import type { TrainEvent } from "../actors/run/events.ts";
import type { Plan } from "../actors/run/plan.ts";
import { openTraceFile } from "../console/run_files/chrome_trace.ts";
import type { Row } from "./report.ts";
import { interleave, spread, spreadOf } from "./timing.ts";
import { type BenchEngine, openBenchEngine, type Workload } from "./workload.ts";

/** The GPT that `troupe train` trains unless told otherwise. */
const DEFAULT: Workload = {
  config: { layers: 4, hidden: 128, heads: 4, seq: 64, vocab: 256 },
  microBatch: 8,
};

const RUN = { device: "native", microBatches: 4, schedule: "message-driven", workload: DEFAULT };

/** Steps of each case in a round. */
const STEPS = 5;

/** Takes steps as a run does that writes a trace. */
function openWriter({ prepared, outcome }: BenchEngine, path: string) {
  const file = openTraceFile({ path, announce: () => {} });
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
      const rounds = await interleave(cases, { rounds: 31 });
      const name = `${workers} workers`;
      rows.push(
        {
          name: `${name}, a step`,
          unit: "ms",
          measured: spreadOf(rounds, (ms) => ms.plain / STEPS),
        },
        {
          name: `${name}, traced ÷ plain`,
          unit: "%",
          measured: spreadOf(rounds, (ms) => 100 * ms.traced / ms.plain),
          target: { atMost: 102 },
        },
        {
          name: `${name}, traced ÷ plain, of all cores`,
          unit: "%",
          measured: spread(cpuMs.traced.map((ms, i) => 100 * ms / cpuMs.plain[i]!)),
        },
        { name: `${name}, to write a step`, unit: "ms", measured: spread(writer.writeMs) },
      );
    }
    return rows;
  } finally {
    await Deno.remove(path);
  }
}
