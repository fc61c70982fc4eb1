/**
 * Facts of a run that do not change while it runs.
 *
 * @module
 */

import { commandLine, WORKERS_MAX } from "../../actors/options/limits.ts";
import type { ActionKind, Schedule } from "../../schedules/mod.ts";
import { inkOf } from "../../schedules/pictures/svg.ts";
import type { RunRecord } from "../../actors/run_folder/metrics_file.ts";
import { shellWord } from "../train/data_files.ts";
import type { FactTable, RunFacts } from "./state.ts";

/** Limits of a page for rows and characters of files. */
const ROWS_MAX = 200, TEXT_MAX = 500;

/** Makes the tables of a record. */
function tablesOf(record: RunRecord): FactTable[] {
  const { model, started, data, schedule, plan, starts, flags } = record;
  const last = starts.at(-1), { environment } = last ?? {};
  return [
    tableOf("Run", {
      ...last?.script === undefined
        ? { command: last && commandLine("train", ...last.command.map(shellWord)) }
        : { script: last.script },
      model: `${model}, ${count(plan.parameters)} parameters`,
      data: withHash(data),
      schedule: withHash(schedule),
      started,
      ...last?.from !== undefined && { "resumed from": last.from },
    }),
    tableOf(
      "Plan",
      Object.fromEntries(plan.stages.map(({ stage, workers, layers, parameters, costShare }) => [
        `stage ${stage}`,
        `${layers.join(", ")} on worker ${workers.join(", ")}: ${count(parameters)} parameters, ` +
        `${(100 * costShare).toFixed(0)} % of the work`,
      ])),
    ),
    tableOf("Environment", { ...environment }),
    tableOf("Flags", flags),
  ];
}

const count = (n: number) => n.toLocaleString("en-US");

const withHash = ({ name, hash }: { readonly name: string; readonly hash?: string }) =>
  hash === undefined ? name : `${name}, ${hash.slice(0, 12)}`;

function tableOf(title: string, values: Readonly<Record<string, unknown>>): FactTable {
  const rows = Object.entries(values)
    .filter(([, value]) => value !== undefined && value !== null)
    .slice(0, ROWS_MAX)
    .map(([name, value]) => [shortened(name), shortened(textOf(value))] as const);
  return { title, rows };
}

const textOf = (value: unknown) => typeof value === "string" ? value : JSON.stringify(value) ?? "";

const shortened = (text: string) => text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text;

const KINDS: readonly ActionKind[] = ["F", "B", "I", "W", "R"];

/** Units of predictions of built-in models. */
const UNITS: ReadonlyMap<string, string> = new Map([
  ["gpt", "tokens"],
  ["llama", "tokens"],
  ["mlp", "samples"],
]);

/**
 * Makes the facts of a run.
 *
 * @param schedule undefined if it is unknown; then stages are those of the recorded plan.
 * @param directory folder of the run, if it has one.
 */
export function runFacts(
  record: RunRecord,
  schedule: Schedule | undefined,
  directory: string | undefined,
): RunFacts {
  const { model, started, plan: { replicas, stages } } = record;
  const { lists, pipelineOf = [0] } = schedule ?? {};
  const used = lists && new Set(lists.flatMap((list) => Array.from(list, ({ kind }) => kind)));
  const kinds = KINDS.filter((kind) => used?.has(kind) ?? "FB".includes(kind));
  const holders = schedule ? heldIn(schedule) : heldInPlan(stages);
  return {
    title: directory ?? model,
    schedule: record.schedule.name,
    unit: UNITS.get(model) ?? "predictions",
    started: Date.parse(started),
    ...directory !== undefined && { command: commandLine("dashboard", shellWord(directory)) },
    workers: Array.from(
      { length: replicas },
      (_, replica) => holders.map((stages) => ({ replica, stages })),
    ).flat().slice(0, WORKERS_MAX),
    pipelineOf,
    inks: Object.fromEntries(inksOf(kinds, stages.length, Math.max(...pipelineOf) + 1)),
    tables: tablesOf(record),
  };
}

/** Returns the stages of each worker of a data-parallel replica. */
const heldIn = ({ placement }: Schedule): number[][] =>
  placement.map((held) => [...new Set(held.map(({ stage }) => stage))].sort((a, b) => a - b));

function heldInPlan(stages: RunRecord["plan"]["stages"]): number[][] {
  const held: number[][] = [];
  for (const { stage, workers } of stages) {
    for (const worker of workers) (held[worker] ??= []).push(stage);
  }
  return Array.from(held, (stages = []) => stages);
}

function* inksOf(kinds: readonly ActionKind[], stages: number, pipelines: number) {
  for (const kind of kinds) {
    for (let stage = 0; stage < stages; stage++) {
      for (let pipeline = 0; pipeline < pipelines; pipeline++) {
        const { fill, text } = inkOf(kind, { stage, stages, pipeline, pipelines });
        yield [`${kind}${stage}.${pipeline}`, [fill, text]] as const;
      }
    }
  }
}
