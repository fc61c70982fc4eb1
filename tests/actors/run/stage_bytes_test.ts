/** Bytes of stages as schedules count them: what the kernels plan, and what the workers then hold. */

import assert from "node:assert/strict";
import { limitedBytes } from "../../../actors/mod.ts";
import { type CompileOptions, compileRun } from "../../../actors/run/compile_run.ts";
import { stageBytes } from "../../../actors/run/memory/stage_bytes.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { createSchedule, scheduleMemory, withLists } from "../../../schedules/mod.ts";

const MODEL = gpt2({ layers: 4, hidden: 16, heads: 2, seq: 8, vocab: 32 }, 2);

const RUNS: readonly [schedule: string, options: Partial<CompileOptions>][] = [
  ["gpipe", {}],
  ["1f1b", { recompute: "cheap" }],
  ["1f1b", { layout: "E,1|.5|1.5|1,H" }],
  ["interleaved", { recomputeInterval: 1 }],
  ["chimera", { precision: "fp16" }],
  ["chimera halved", {}],
  ["hanayo", { offload: true, precision: "fp16", bucketSize: 200 }],
  ["zb-h1", {}],
  ["zb-v", { recomputeInterval: 2 }],
  ["pipedream", {}],
];

Deno.test("each worker holds by its list, byte by byte, what its kernels plan", () => {
  for (const [name, options] of RUNS) {
    const [known, scale] = name.split(" "), sizes = { workers: 4, microBatches: 8 };
    const schedule = withLists(
      createSchedule(known!, { ...sizes, ...scale && { scale: "halving" } }),
    );
    const compiled = compileRun({ model: MODEL, ...options }, schedule, "native");
    // Arrays of messages lie beside the stages.
    const stages = stageBytes(compiled, "native").map((one) => ({ ...one, messageBytes: 0 }));
    const held = scheduleMemory(schedule, stages).map((worker) => worker.held);
    const planned = compiled.memory.map((worker) => limitedBytes(worker, "native"));
    assert.deepEqual(held, planned, `${name} ${JSON.stringify(options)}`);
  }
});
