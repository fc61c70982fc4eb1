/**
 * What a page says of a run that does not change while it runs.
 *
 * @module
 */

import { commandLine } from "../../../actors/run/command_line.ts";
import { WORKERS_MAX } from "../../../actors/run/options/sizes.ts";
import type { ActionKind, Schedule } from "../../../schedules/mod.ts";
import { inkOf } from "../../../schedules/pictures/svg.ts";
import { shellWord } from "../../train/data_files.ts";
import type { RunRecord } from "../../run_files/run_record.ts";
import { tablesOf } from "./fact_tables.ts";
import type { RunFacts } from "./view.ts";

const KINDS: readonly ActionKind[] = ["F", "B", "I", "W", "R"];

/** What the models that come with Troupe predict. */
const UNITS: ReadonlyMap<string, string> = new Map([
  ["gpt", "tokens"],
  ["llama", "tokens"],
  ["mlp", "samples"],
]);

/**
 * Makes the facts.
 *
 * @param schedule undefined where it is not known any more: then the plan says who held what.
 * @param directory the run's folder, where it has one.
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
    pipeOf: pipelineOf,
    inks: Object.fromEntries(inksOf(kinds, stages.length, Math.max(...pipelineOf) + 1)),
    tables: tablesOf(record),
  };
}

/** The stages of each worker of a data-parallel replica. */
const heldIn = ({ placement }: Schedule): number[][] =>
  placement.map((held) => [...new Set(held.map(({ stage }) => stage))].sort((a, b) => a - b));

function heldInPlan(stages: RunRecord["plan"]["stages"]): number[][] {
  const held: number[][] = [];
  for (const { stage, workers } of stages) {
    for (const worker of workers) (held[worker] ??= []).push(stage);
  }
  return Array.from(held, (stages = []) => stages);
}

function* inksOf(kinds: readonly ActionKind[], stages: number, replicas: number) {
  for (const kind of kinds) {
    for (let stage = 0; stage < stages; stage++) {
      for (let replica = 0; replica < replicas; replica++) {
        const { fill, text } = inkOf(kind, { stage, stages, pipeline: replica, pipelines: replicas });
        yield [`${kind}${stage}.${replica}`, [fill, text]] as const;
      }
    }
  }
}
