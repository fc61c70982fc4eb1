import { equal, ok } from "node:assert/strict";
import {
  type CheckedRun,
  LOSS_MAX,
  planCheckOf,
} from "../../../../actors/foresight/planner/check_plan.ts";
import { candidatesOf } from "../../../../actors/foresight/planner/candidate.ts";
import { SMALL } from "./synthetic.ts";

/** Runs by what they took, what they took again, and which of them the planner chooses. */
function runsOf(
  times: readonly (readonly [number, number | undefined])[],
  choice: number,
): CheckedRun[] {
  const candidates = [...candidatesOf(SMALL)];
  return times.map(([measuredMs, againMs], i) => ({
    candidate: candidates[i]!,
    measuredMs,
    predictedMs: measuredMs,
    againMs,
    isChoice: i === choice,
  }));
}

Deno.test("a choice is held against the best of those that were measured again", () => {
  const times = [[90, 104], [95, 100], [99, 101], [110, 102], [120, undefined]] as const;
  const { best, choice, loss } = planCheckOf(runsOf(times, 3));
  equal(best.againMs, 100);
  equal(choice.againMs, 102);
  ok(Math.abs(loss - 0.02) < 1e-12 && loss <= LOSS_MAX);
  ok(planCheckOf(runsOf(times, 0)).loss > LOSS_MAX);
  equal(planCheckOf(runsOf(times, 1)).loss, 0);
});
