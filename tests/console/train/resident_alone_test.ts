import assert from "node:assert/strict";
import { trainWatched } from "../../../bench/workload.ts";

const MARGIN = 1.2;

/** Two blocks of GPT-2 small with its embedding and head, which are large compared with a process. */
const RUN = {
  config: { layers: 2, hidden: 768, heads: 12, seq: 16, vocab: 16_000 },
  microBatch: 1,
  microBatches: 2,
  steps: 4, // a busy machine may read the first lines late
} as const;

for (const isolation of ["worker", "process"]) {
  Deno.test({
    name:
      `the resident memory of a run is at most ${MARGIN} times its plan, isolation ${isolation}`,
    // Other systems do not report the memory of another process.
    ignore: Deno.build.os !== "linux",
    fn: async () => {
      const flags = ["--device", "native", "--workers", "2", "--isolation", isolation];
      const watched = () => trainWatched({ ...RUN, flags });
      const first = await watched();
      // A busy machine may collect garbage later, so one of two runs must pass.
      const { planned, ...seen } = first.peak > MARGIN * first.planned ? await watched() : first;
      const ratios = Object.entries(seen).map(([when, bytes]) =>
        `${when} ${(bytes / planned).toFixed(2)}`
      );
      assert.ok(seen.peak <= MARGIN * planned, `received ${ratios} times the plan`);
      // Any run would fit a plan that is too large.
      assert.ok(seen.training >= planned / MARGIN, `received ${ratios} times the plan`);
    },
  });
}
