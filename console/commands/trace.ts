/**
 * `troupe trace`: what a trace of a run comes to.
 *
 * @module
 */

import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import type { GapKind } from "../../actors/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { inputFileProblem } from "../../kernels/mod.ts";
import type { CommandContext } from "../command.ts";
import { inOneLine } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { helpOf } from "../flags/help.ts";
import { parseArguments } from "../flags/parse.ts";
import { print } from "../print.ts";
import { runPath } from "../run_files/run_folder.ts";
import { openTrace } from "../trace/read_trace.ts";
import { openRunTrace } from "../trace/run_trace.ts";
import { summarizeTrace, type TraceSummary, type WorkerSummary } from "../trace/trace_summary.ts";

const TRACE_FLAGS = {
  json: { kind: "switch", help: "the same as one JSON object" },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe trace`. */
export const TRACE_SYNTAX: CommandSyntax = {
  name: "trace",
  summary: "sums up a trace: who was busy, and who waited for whom",
  usage: ["summary FILE [flags]", "summary RUN [flags]"],
  about: [
    "Sums up, worker by worker, a file that troupe train --trace FILE has written, or the steps that a",
    "run with --trace or --dashboard keeps: RUN is its folder, or its name below runs/. The file",
    "is for https://ui.perfetto.dev, which shows every action on its worker's track.",
  ],
  words: ["summary"],
  groups: [{ flags: TRACE_FLAGS }],
  notes: [
    "Shares are of the time from the first action of a step to its last. busy: F, B, I and W;",
    "communication: all-reduces and what waits for them or for a message; bubble: nothing ran. Bubbles by why: input, another worker was still computing what was needed;",
    "message, that was on its way; inject, stage 0 waited for its next micro-batch; reduce and",
    "optimizer, other copies or the last gradients were not there; pause, between two actions; idle,",
    "nothing was left to do.",
  ],
};

/** Runs `troupe trace`; returns the exit code. */
export async function traceCommand(
  args: readonly string[],
  { begin }: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(TRACE_SYNTAX)), 0;
  if (answersItself(args, TRACE_SYNTAX)) return 0;
  const { words, flags } = parseArguments(args, TRACE_FLAGS, { takesWords: true });
  const [what = "", named, ...more] = words;
  if (what !== "summary") {
    throw new TypeError(
      `Cannot run "trace ${inOneLine(what)}": it must be summary${
        didYouMean(what, TRACE_SYNTAX.words!)
      }`,
    );
  }
  if (named === undefined || more.length > 0) {
    const count = words.length - 1;
    throw new TypeError(`Cannot sum up: the number of traces must be 1, received ${count}`);
  }
  const path = runPath(named), isRun = inputFileProblem(path) === "a folder";
  const summary = summarizeTrace(isRun ? await openRunTrace(path) : openTrace(path), path);
  begin();
  print(flags.json ? JSON.stringify(summary) : describeSummary(summary).map(inOneLine).join("\n"));
  return 0;
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

const GAPS: readonly GapKind[] = [
  "input",
  "message",
  "inject",
  "reduce",
  "optimizer",
  "pause",
  "idle",
];

/** A share below it would be shown as 0.0 %. */
const SHOWN_MIN = 0.0005;

/** A summary as lines of text. */
export function describeSummary(summary: TraceSummary): string[] {
  const { model, schedule, steps, firstStep, lastStep, seconds, workers } = summary;
  const kinds = [...new Set(workers.flatMap(({ durations }) => Object.keys(durations)))];
  const gaps = GAPS.filter((kind) => workers.some((worker) => worker.gaps[kind] >= SHOWN_MIN));
  const tableOf = (head: readonly string[], cells: (worker: WorkerSummary) => string[]) =>
    formatTable([head, ...workers.map((one) => [`worker ${one.worker}`, ...cells(one)])]);
  const which = steps === 1 ? `step ${firstStep}` : `${steps} steps of ${firstStep} to ${lastStep}`;
  return [
    `${model}, ${schedule}, ${workers.length} workers: ${which}, ${seconds.toFixed(1)} s`,
    "",
    ...tableOf(
      ["", "busy", "communication", "optimizer", "bubble"],
      ({ busy, communication, optimizer, bubble }) =>
        [busy, communication, optimizer, bubble].map(percent),
    ),
    "Times overlap: communication has the part of the bubble that waits for it, so a row may be above 100 %.",
    "",
    ...tableOf(["bubble", ...gaps], (one) => gaps.map((kind) => percent(one.gaps[kind]))),
    "",
    ...workers.flatMap(waitLine),
    "",
    ...tableOf(
      ["", "actions", ...kinds.map((kind) => `${kind} p50/p95 ms`)],
      (one) => [String(one.actions), ...kinds.map((kind) => durationCell(one, kind))],
    ),
  ];
}

/** For whom a worker waited the most. */
function waitLine({ worker, waitsFor }: WorkerSummary): string[] {
  const told = waitsFor.filter(({ share }) => share >= SHOWN_MIN);
  if (told.length === 0) return [];
  const causes = told.map((one) => `worker ${one.worker}: ${one.work} (${percent(one.share)})`);
  return [`worker ${worker} waited for ${causes.join(", ")}`];
}

function durationCell({ durations }: WorkerSummary, kind: string): string {
  const known = durations[kind];
  return known ? `${known.p50Ms.toFixed(2)}/${known.p95Ms.toFixed(2)}` : "";
}
