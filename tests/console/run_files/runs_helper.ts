/** Runs that never ran: folders as they might have left them. */

import { join } from "node:path";
import type { Metrics } from "../../../actors/mod.ts";
import { RUN_FILES, type RunRecord } from "../../../console/run_files/run_record.ts";

/** What a run says of itself, as far as it is read. */
export const RECORD = {
  format: "troupe run",
  version: 1,
  model: "gpt",
  started: "2026-01-02T03:04:05.678Z",
  flags: { steps: 40, lr: 0.001, out: "a" },
  data: { name: "sotu" },
  schedule: { name: "1f1b", hash: "00" },
  plan: { parameters: 1234 } as RunRecord["plan"],
  starts: [],
} as const satisfies RunRecord;

/** The record of a step, or of an evaluation after it. */
export const measured = (step: number, loss: number, type: Metrics["type"] = "step"): Metrics => ({
  ...{ type, step, time: 0, seconds: step, tokens: 8 * step, rss: 0 },
  ...type === "evaluation" ? { evalLoss: loss } : { loss, tokensPerSecond: 100 * step },
});

/** Writes the folder of a run. */
export async function writeRun(
  path: string,
  metrics: readonly Metrics[],
  record: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  await Deno.mkdir(path, { recursive: true });
  await Deno.writeTextFile(
    join(path, RUN_FILES.record),
    JSON.stringify({ ...RECORD, ...record }),
  );
  const lines = metrics.map((one) => JSON.stringify(one) + "\n").join("");
  await Deno.writeTextFile(join(path, RUN_FILES.metrics), lines);
  return path;
}
