import assert from "node:assert/strict";
import { columnRounds } from "../../../../actors/runtime/transports/mpi/collectives/column_rounds.ts";

Deno.test("columns without a common rank share a division of all ranks", () => {
  assert.deepEqual(columnRounds([[0, 2], [1, 3]]), [[0, 1]]);
  // Chimera on four workers: every rank holds two stages.
  assert.deepEqual(columnRounds([[0, 3], [1, 2], [2, 1], [3, 0]]), [[0, 1], [2, 3]]);
  assert.deepEqual(columnRounds([[0, 1], [1, 2], [2, 3], [0, 0]]), [[0, 2], [1]]);
});
