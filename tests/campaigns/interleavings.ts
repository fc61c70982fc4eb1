/**
 * Orders and crashes of actors that wait for answers: a correct two-phase commit must never fail,
 * one with a planted bug must be found out by every strategy, training whose supervisor crashes
 * before or after any of its steps must end with weights or with that crash, never in a deadlock, and
 * PipeDream and PipeDream-2BW must end with the serial weights in any order, or under faults of any
 * kind with a clear report.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { print } from "../../console/print.ts";
import type { RehearsalPlan } from "../../actors/mod.ts";
import { rehearsal } from "../../actors/rehearsal/rehearsal.ts";
import {
  delay,
  explore,
  type FaultKind,
  fifo,
  pct,
  portfolio,
  pos,
  random,
  simulate,
  type Strategy,
} from "../../testing.ts";
import { CRASHES, playCommit } from "../actors/simulation/two_phase_commit.ts";

const STRATEGIES: Readonly<Record<string, () => Strategy>> = {
  random,
  pct: () => pct(3),
  pos,
  delay: () => delay(2),
  portfolio,
};

/** Runs in which each strategy must find the planted bug. */
const SEARCH_RUNS = 500;

/** Steps of training before which the supervisor crashes. */
const CRASH_STEPS = 150;

const SCHEDULES = [
  "1f1b",
  "chimera",
  "hanayo",
  "message-driven",
  "zb-h1",
  "pipedream",
  "pipedream-2bw",
];

/** Without flushes: orders of each plan, and orders with faults of each kind. */
const UNFLUSHED_RUNS = 1000;

const FAULTS: readonly FaultKind[] = [
  "crash-before",
  "crash-amid",
  "crash-after",
  "stall",
  "slow-edge",
  "site",
];

interface Count {
  cases: number;
  survived: number;
}

function report(count: Count, what: string, cases: number, survived: number): void {
  print(`${what}: ${survived} of ${cases}`);
  count.cases += cases;
  count.survived += survived;
}

async function commits(count: Count, cases: number, seed: number): Promise<void> {
  const runs = Math.ceil(cases / Object.keys(STRATEGIES).length);
  for (const [name, make] of Object.entries(STRATEGIES)) {
    const strategy = make();
    let survived = 0;
    for (let run = 0; run < runs; run++) {
      const start = { run, expectedSteps: 50 };
      const options = { seed: seed + run, strategy, faults: CRASHES, start };
      const { failure } = await simulate(options, (world) => playCommit(world, false));
      if (failure) print(`seed ${seed + run}: ${JSON.stringify(failure)}`);
      else survived++;
    }
    report(count, `two-phase commit with crashes, ${name}, without failure`, runs, survived);
    const options = { seed, strategy: make(), faults: CRASHES, runs: SEARCH_RUNS };
    const { failed } = await explore(options, (world) => playCommit(world, true));
    report(count, `its planted bug, found by ${name}`, 1, failed ? 1 : 0);
  }
}

async function training(count: Count, seed: number): Promise<void> {
  for (const schedule of SCHEDULES) {
    const configuration: RehearsalPlan = {
      schedule,
      workers: 2,
      microBatches: 2,
      replicas: 1,
      mayLose: true,
    };
    let survived = 0, cases = 0;
    for (const make of [fifo, ...Object.values(STRATEGIES)]) {
      for (const kind of ["crash-before", "crash-after"] as const) {
        for (let step = 0; step < CRASH_STEPS; step++, cases++) {
          const faults = [{ step, kind, target: "supervisor" }];
          const options = { seed: seed + step, strategy: make(), configuration, faults };
          const { failure } = await simulate(options, rehearsal);
          if (!failure || failure.name === "InjectedCrash") survived++;
          else print(`${kind} ${step}, seed ${seed + step}: ${JSON.stringify(failure)}`);
        }
      }
    }
    report(count, `${schedule} whose supervisor crashes, without a deadlock`, cases, survived);
  }
}

async function unflushed(count: Count, seed: number): Promise<void> {
  for (const schedule of ["pipedream", "pipedream-2bw"]) {
    for (const kind of [undefined, ...FAULTS]) {
      const configuration: RehearsalPlan = {
        schedule,
        steps: 4,
        pauseEvery: 2,
        mayLose: kind !== undefined,
      };
      let survived = 0;
      for (let run = 0; run < UNFLUSHED_RUNS; run++) {
        const strategy = [random, () => pct(3), pos][run % 3]!(),
          start = { run, expectedSteps: 500 };
        const faults = kind && { kinds: [kind], rate: 0.003 };
        const options = {
          seed: seed + run,
          strategy,
          configuration,
          start,
          ...faults && { faults },
        };
        const { failure } = await simulate(options, rehearsal);
        if (!failure || failure.name === "InjectedCrash") survived++;
        else print(`${schedule}, ${kind}, seed ${seed + run}: ${JSON.stringify(failure)}`);
      }
      const what = kind ? `under ${kind}` : "in any order";
      report(count, `${schedule} ${what}, with its weights or a report`, UNFLUSHED_RUNS, survived);
    }
  }
}

if (import.meta.main) {
  const flags = parseArgs(Deno.args, {
    string: ["cases", "seed"],
    default: { cases: "10000", seed: "0" },
  });
  const count = { cases: 0, survived: 0 }, seed = Number(flags.seed);
  await commits(count, Number(flags.cases), seed);
  await training(count, seed);
  await unflushed(count, seed);
  print(`interleavings: ${count.cases} cases, ${count.survived} survived`);
  Deno.exit(count.survived === count.cases ? 0 : 1);
}
