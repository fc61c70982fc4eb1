/**
 * A schedule that was measured, in each format of `troupe schedule`.
 *
 * @module
 */

import { COLUMNS_MIN, formatGrid, shortNumber } from "../../schedules/pictures/grid.ts";
import {
  type Analysis,
  formatCsv,
  formatEdge,
  formatSvg,
  formatTorchCsv,
  type ListedSchedule,
  longestBubbles,
  makespanLowerBound,
  type Schedule,
  scheduleRecord,
  type WorkerBytes,
} from "../../schedules/mod.ts";
import { memoryLines } from "./memory_flags.ts";
import { formatTrace } from "./planned_trace.ts";
import type { ScheduleFlags } from "./schedule_command_flags.ts";

/** The skip edges that are named. */
const EDGES_SHOWN = 8;

/** The workers whose stages are named where a bound holds for a placement. */
const PLACES_SHOWN = 8;

/** Where it is shown. */
interface Terminal {
  /** Its columns; 120 unless given. */
  readonly columns?: number | undefined;
  /** Whether it shows colours; false unless given. */
  readonly color?: boolean | undefined;
}

/** A schedule as `--format` says. */
export function showSchedule(
  analysis: Analysis,
  flags: ScheduleFlags,
  { columns, color }: Terminal,
  bytes?: readonly WorkerBytes[],
): string {
  const bound = analysis.schedule.name === "search" ? boundOf(analysis, flags) : undefined;
  switch (flags.format) {
    case "csv":
      return formatCsv(analysis.schedule.lists);
    case "pytorch":
      return forTorch(analysis.schedule);
    case "trace":
      return formatTrace(analysis);
    case "json": {
      const record = { ...scheduleRecord(analysis), ...bytes && { memory: bytes } };
      return JSON.stringify(bound === undefined ? record : { ...record, lowerBound: bound }) + "\n";
    }
    case "svg":
      return formatSvg(analysis);
    case "grid":
      return heading(analysis, bound) + edgesLine(analysis) + "\n" +
        formatGrid(analysis, {
          columns: Math.max(COLUMNS_MIN, columns ?? 120),
          color: color === true && flags.out === undefined,
        }) +
        [...longestBubbles(analysis), ...bytes ? ["", ...memoryLines(bytes)] : []]
          .map((line) => `${line}\n`).join("");
  }
}

function forTorch({ name, updates, lists }: ListedSchedule): string {
  if (updates === "flush") return formatTorchCsv(lists);
  throw new RangeError(
    `Cannot write lists for PyTorch: the weights must change after the step, received ${name}, ` +
      `whose updates are ${updates}`,
  );
}

function boundOf({ schedule }: Analysis, { costs, options }: ScheduleFlags): number {
  const limit = options.activationLimit ?? schedule.workers;
  return Number(makespanLowerBound(schedule, costs, limit).toPrecision(12));
}

/** The stages of the first few workers: "stages 0+7, 1+6, 2+5, 3+4 on workers 0 to 3". */
function inWords(placement: Schedule["placement"]): string {
  const shown = placement.slice(0, PLACES_SHOWN).map((held) =>
    held.map(({ stage }) => stage).join("+")
  );
  const more = placement.length > PLACES_SHOWN ? " …" : "";
  return `stages ${shown.join(", ")}${more} on workers 0 to ${placement.length - 1}`;
}

/** The skip edges, and what they make workers hold. */
function edgesLine({ schedule: { edges = [] }, peakSkips = [] }: Analysis): string {
  if (edges.length === 0) return "";
  const shown = edges.slice(0, EDGES_SHOWN).map(formatEdge).join(", ");
  const more = edges.length > EDGES_SHOWN ? " …" : "", held = peakSkips.map(shortNumber).join(", ");
  return `skip edges ${shown}${more}: workers hold at most ${held} values and gradients of them\n`;
}

function heading({ schedule, makespan, bubbleRatio }: Analysis, bound: number | undefined): string {
  const { name, workers, stages, microBatches, slices = 1, placement } = schedule;
  const cut = slices > 1 ? ` in ${slices} slices` : "";
  const line =
    `${name}: ${workers} workers, ${stages} stages, ${microBatches} micro-batches${cut}, ` +
    `time ${shortNumber(makespan)}, bubbles ${shortNumber(100 * bubbleRatio)} %`;
  if (bound === undefined) return `${line}\n`;
  const gap = shortNumber(100 * (makespan / bound - 1));
  return `${line}\nno order of this placement (${inWords(placement)}) takes less than ` +
    `${shortNumber(bound)}: the gap is at most ${gap} %\n`;
}
