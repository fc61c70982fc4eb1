/**
 * `troupe plan check`: what is searched, and how it is told.
 *
 * @module
 */

import type { PlanSpace } from "../../actors/foresight/planner/candidate.ts";
import {
  type CheckedRun,
  checkPlan,
  LOSS_MAX,
  type PlanCheck,
} from "../../actors/foresight/planner/check_plan.ts";
import { describeCandidate } from "../../actors/foresight/planner/refusal.ts";
import { gpt2, resolveDevice } from "../../kernels/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import { print, printError } from "../print.ts";
import type { PlanFlags } from "./plan_flags.ts";

/** The model, small enough that all runs of it take some minutes. */
const MODEL = { layers: 4, hidden: 256, heads: 4, seq: 64, vocab: 512 };

/** The most workers. */
const WORKERS_MAX = 4;

/** What is searched exhaustively. */
const spaceOf = (devices: number): PlanSpace => ({
  devices,
  batch: 32,
  layers: 2 * MODEL.layers + 2,
  schedules: ["gpipe", "1f1b", "message-driven", "interleaved", "zb-h1", "chimera", "hanayo"],
  microBatch: [2, 4],
  recompute: ["none", "full"],
  precision: ["fp32"],
  offload: [false],
  isPlain: true,
});

/** Holds the planner's choice against an exhaustive search; returns the exit code. */
export async function printPlanCheck(
  { device, json, devices }: PlanFlags,
  { begin }: Pick<CommandContext, "begin">,
): Promise<number> {
  const workers = devices ?? Math.min(navigator.hardwareConcurrency, WORKERS_MAX);
  const { name } = await resolveDevice(
    device === undefined ? "auto" : deviceNamed(device),
    printError,
  );
  begin();
  const checked = await checkPlan({
    space: spaceOf(workers),
    model: gpt2(MODEL, 2),
    device: name,
    announce: printError,
  });
  if (json) { for (const run of checked.runs) print(JSON.stringify(recordOf(run))); }
  else for (const line of tableOf(checked)) print(line);
  const isPassed = checked.loss <= LOSS_MAX;
  (json ? printError : print)(resultOf(checked, isPassed));
  return isPassed ? 0 : 1;
}

const deviceNamed = (name: string) => {
  const names = ["native", "wasm", "reference"] as const, found = names.find((one) => one === name);
  if (found !== undefined) return found;
  throw new RangeError(
    `Cannot check a plan: --device must be one of ${names.join(", ")}, received ${name}`,
  );
};

/** One line of JSON. */
function recordOf({ candidate, measuredMs, predictedMs, againMs, isChoice }: CheckedRun) {
  return {
    configuration: describeCandidate(candidate),
    measured: measuredMs,
    predicted: predictedMs,
    error: Math.abs(predictedMs - measuredMs) / measuredMs,
    again: againMs ?? null,
    choice: isChoice,
  };
}

function tableOf({ runs }: PlanCheck): string[] {
  const ms = (value: number | undefined) => value?.toFixed(1) ?? "";
  return formatTable([
    ["", "measured, ms", "predicted", "error", "again"],
    ...runs.map(({ candidate, measuredMs, predictedMs, againMs, isChoice }) => [
      `${describeCandidate(candidate)}${isChoice ? " (the choice)" : ""}`,
      ms(measuredMs),
      ms(predictedMs),
      `${(100 * (predictedMs / measuredMs - 1)).toFixed(1)} %`,
      ms(againMs),
    ]),
  ]);
}

function resultOf({ runs, choice, best, loss }: PlanCheck, isPassed: boolean): string {
  return `of ${runs.length} runs the planner chooses ${describeCandidate(choice.candidate)}: ` +
    `${choice.againMs!.toFixed(1)} ms, ${(100 * loss).toFixed(1)} % more than the best, ` +
    `${describeCandidate(best.candidate)}; ${isPassed ? "within" : "beyond"} ${100 * LOSS_MAX} %`;
}
