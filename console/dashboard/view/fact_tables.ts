/**
 * What a run was told, what was planned and where it ran, as tables for a reader.
 *
 * @module
 */

import { commandLine } from "../../../actors/run/command_line.ts";
import { shellWord } from "../../train/data_files.ts";
import type { RunRecord } from "../../run_files/run_record.ts";
import type { FactTable } from "./view.ts";

/** A file may hold more than a page should show. */
const ROWS_MAX = 200, TEXT_MAX = 500;

/** Makes the tables. */
export function tablesOf(record: RunRecord): FactTable[] {
  const { model, started, data, schedule, plan, starts, flags } = record;
  const last = starts.at(-1), { environment } = last ?? {};
  return [
    tableOf("Run", {
      command: last && commandLine("train", ...last.command.map(shellWord)),
      model: `${model}, ${count(plan.parameters)} parameters`,
      data: withHash(data),
      schedule: withHash(schedule),
      started,
      ...last?.from !== undefined && { "went on from": last.from },
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
