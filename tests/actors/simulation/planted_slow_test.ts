/** Each planted bug is found by every strategy, is made small, and is not found where it is not. */

import assert from "node:assert/strict";
import { atDepth } from "../../depth.ts";
import {
  delay,
  explore,
  pct,
  portfolio,
  pos,
  random,
  shrink,
  type Strategy,
} from "../../../testing.ts";
import { PLANTED, type Planted } from "./planted.ts";

/** Runs in which each strategy must find each bug. */
const MAX_RUNS = 500;

/** Runs without the bug, none of which may fail. */
const CLEAN_RUNS = atDepth(20, 200);

const STRATEGIES = [random, () => pct(3), pos, () => delay(2), portfolio];

function exploreWith({ options, scenario }: Planted, strategy: Strategy, isPlanted: boolean) {
  const runs = isPlanted ? MAX_RUNS : CLEAN_RUNS;
  return explore({ ...options, strategy, runs, seed: 1 }, scenario(isPlanted));
}

for (const planted of PLANTED) {
  Deno.test(`planted: ${planted.name} is found by every strategy, and not where it is not`, async () => {
    for (const make of STRATEGIES) {
      const strategy = make();
      const { failed, runs } = await exploreWith(planted, strategy, true);
      assert.ok(failed, `${strategy.name} did not find it in ${runs} runs`);
    }
    const { failed, runs } = await exploreWith(planted, portfolio(), false);
    assert.equal(failed, undefined, JSON.stringify(failed?.failure));
    assert.equal(runs, CLEAN_RUNS);
  });

  Deno.test(`planted: ${planted.name} shrinks to at most 5 deviations and 1 fault`, async () => {
    const strategy = random();
    const { failed } = await exploreWith(planted, strategy, true);
    const options = { ...planted.options, strategy, seed: 1 };
    const { run, isReplayed } = await shrink(options, planted.scenario(true), failed!);
    assert.ok(run.deviations.length <= 5, `${run.deviations.length} deviations`);
    assert.ok(run.faults.length <= 1);
    assert.equal(run.failure.name, failed!.failure.name);
    assert.ok(isReplayed);
  });
}
