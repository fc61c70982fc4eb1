/** Which all-reduces start early (Chimera, section 3.2). */

import assert from "node:assert/strict";
import { eagerStages } from "../../../actors/commit/eager_stages.ts";
import { createSchedule } from "../../../schedules/mod.ts";

Deno.test("eager-opt starts early only where each worker has idle time after the stage's last backward", () => {
  const stages = (name: string, workers: number) =>
    eagerStages(createSchedule(name, { workers, microBatches: workers }), "eager-opt");
  // Stage 0 and those of the middle workers end with their worker: no time is left there.
  assert.deepEqual(stages("chimera", 4), [3]);
  assert.deepEqual(stages("hanayo", 4), [5, 6, 7]);
  // With one stage for each worker every last backward is the worker's last action.
  for (const name of ["gpipe", "1f1b", "zb-h1"]) assert.deepEqual(stages(name, 4), [], name);
  assert.deepEqual(stages("interleaved", 2), []);
});
