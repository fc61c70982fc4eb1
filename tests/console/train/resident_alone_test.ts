import assert from "node:assert/strict";
import { trainWatched } from "../../../bench/workload.ts";

const MARGIN = 1.2;

/** Two blocks of GPT-2 small between its two tables: what is left of a process itself is little. */
const RUN = {
  config: { layers: 2, hidden: 768, heads: 12, seq: 16, vocab: 16_000 },
  microBatch: 1,
  microBatches: 2,
  steps: 2,
} as const;

for (const isolation of ["worker", "process"]) {
  Deno.test({
    name:
      `what the system sees of a run is at most ${MARGIN} times its plan, isolation ${isolation}`,
    // Other systems do not report the memory of another process.
    ignore: Deno.build.os !== "linux",
    fn: async () => {
      const flags = ["--device", "native", "--workers", "2", "--isolation", isolation];
      const watched = () => trainWatched({ ...RUN, flags });
      const first = await watched();
      // A busy machine can collect later, so one of two runs must hold.
      const { planned, ...seen } = first.peak > MARGIN * first.planned ? await watched() : first;
      const ratios = Object.entries(seen).map(([when, bytes]) =>
        `${when} ${(bytes / planned).toFixed(2)}`
      );
      assert.ok(seen.peak <= MARGIN * planned, `received ${ratios} times the plan`);
      // A plan that says too much would hold any run.
      assert.ok(seen.training >= planned / MARGIN, `received ${ratios} times the plan`);
    },
  });
}
