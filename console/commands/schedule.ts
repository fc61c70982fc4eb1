/**
 * `troupe schedule`: shows, lists and compares schedules.
 *
 * @module
 */

import { basename } from "node:path";
import { commandLine } from "../../actors/options/limits.ts";
import { checkInputFile, CSV_BYTES_MAX, decodeText } from "../../kernels/internal.ts";
import {
  activationLimitOf,
  formatEdge,
  memoryWithin,
  refuseUnread,
  scheduleRecord,
  violationError,
  withEdges,
} from "../../schedules/internal.ts";
import {
  type Analysis,
  analyze,
  assertValid,
  compareSchedules,
  createSchedule,
  findSchedule,
  formatComparison,
  formatCsv,
  formatSvg,
  formatTorchCsv,
  type ListedSchedule,
  longestBubbles,
  makespanLowerBound,
  parseCsv,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
  validate,
  withLists,
  withRecomputation,
  type WorkerBytes,
} from "../../schedules/mod.ts";
import {
  COLUMNS_MIN,
  formatGrid,
  formatTable,
  shortNumber,
} from "../../schedules/pictures/grid.ts";
import { formatTrialsSvg } from "../../schedules/pictures/svg.ts";
import type { CommandContext } from "../command.ts";
import type { ResultSoFar } from "../so_far.ts";
import type { GivenFlags } from "../flag.ts";
import { answersItself, helpOf } from "../parse.ts";
import { formatTrace } from "../run_files/chrome_trace.ts";
import {
  count,
  ensure,
  inOneLine,
  printError,
  quoted,
  writeAll,
  writeOutput,
} from "../terminal.ts";
import {
  choiceOf,
  costsOfTrials,
  formatTrials,
  memoryLines,
  parseScheduleFlags,
  type SCHEDULE_FLAGS,
  SCHEDULE_SYNTAX,
  type ScheduleFlags,
  trialRecord,
  trialsOf,
} from "./schedule_flags.ts";

/** The terminal, files and signals of the command. */
interface ScheduleCommandContext {
  /** Columns of the terminal. Default 120. */
  readonly columns?: number | undefined;
  /** True if the terminal shows colours. Default false. */
  readonly color?: boolean | undefined;
  /** Reads a text file, for a schedule from a CSV file. */
  readonly readTextFile?: ((path: string) => string) | undefined;
  /** Receives the best result so far of a search or a comparison. */
  readonly soFar?: ((result: ResultSoFar) => void) | undefined;
}

/**
 * Runs `troupe schedule` with the arguments after the word `schedule`: `NAME` and flags, `list`,
 * `compare` and flags, or a CSV file in place of the name. It reads only that file, and writes
 * nothing.
 *
 * @throws {TypeError} if a flag is unknown, has no value or is missing.
 * @throws {RangeError} if a value is invalid, or if the lists of a file cannot run.
 * @throws {SyntaxError} if a cell of a file is not an action.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 *
 * const { text } = scheduleCommand(
 *   ["1f1b", "--workers", "2", "--micro-batches", "2", "--format", "csv"],
 * );
 * strictEqual(text, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
 * ```
 */
export function scheduleCommand(
  args: readonly string[],
  context: ScheduleCommandContext = {},
): ResultSoFar {
  if (args.length === 0 || args[0] === "help" || args.includes("--help")) {
    return { text: `${helpOf(SCHEDULE_SYNTAX)}\n` };
  }
  const flags = parseScheduleFlags(args), { out, words } = flags, [name = ""] = words;
  const received = quoted(words.join(" "));
  const must = "there must be one name, list, jitter or compare beside the flags";
  ensure(words.length === 1 || name === "compare", "show a schedule", must, received);
  const text = Object.hasOwn(SUBCOMMANDS, name)
    ? SUBCOMMANDS[name]!(flags, context)
    : oneSchedule(name, flags, context);
  return { text, out };
}

type Subcommand = (flags: ScheduleFlags, context: ScheduleCommandContext) => string;

const SUBCOMMANDS: Readonly<Record<string, Subcommand>> = { list, compare, jitter };

/** Runs `troupe schedule`: prints its output, or writes it to the file of `--out`. */
export function printSchedule(
  args: readonly string[],
  { soFar }: Pick<CommandContext, "soFar"> = {},
): number {
  if (answersItself(args, SCHEDULE_SYNTAX)) return 0;
  const isTerminal = Deno.stdout.isTerminal();
  const { text, out } = scheduleCommand(args, {
    color: isTerminal && !Deno.noColor,
    columns: isTerminal ? Deno.consoleSize().columns : undefined,
    readTextFile(path) {
      checkInputFile(path, CSV_BYTES_MAX);
      return decodeText(Deno.readFileSync(path), path);
    },
    soFar,
  });
  if (out === undefined) writeAll(Deno.stdout, text);
  else {
    writeOutput(out, text);
    printError(`Wrote ${out}`);
  }
  return 0;
}

/** Makes and shows one schedule. */
function oneSchedule(name: string, flags: ScheduleFlags, context: ScheduleCommandContext): string {
  const isFile = name.endsWith(".csv"), { costs, edges, isRecomputed } = flags;
  const { schedule: made, notes = [] } = isFile
    ? { schedule: readSchedule(name, flags, context) }
    : makeSchedule(name, flags, context);
  const linked = edges && !made.edges ? withEdges(made, edges) : made;
  const recomputes = !isFile && findSchedule(name).reads?.includes("recomputeAhead");
  const listed = withLists(
    isRecomputed && !recomputes ? withRecomputation(linked) : linked,
    costs,
  );
  // An order of gradient sums that Troupe refuses is valid elsewhere, as in PyTorch's looped BFS.
  const violations = validate(listed);
  const fatal = violations.filter(({ reason }) => reason !== "descending");
  if (fatal.length > 0) throw violationError(listed, fatal);
  const warnings = violations.slice(0, 1).map(({ message }) =>
    `cannot be trained with: ${message}`
  );
  const bytes = flags.memory && memoryWithin(listed, flags.memory);
  const shown = showSchedule(analyze(listed, costs), flags, context, bytes);
  const end = [...warnings, ...notes].map((line) => `${line}\n`).join("");
  return flags.format === "grid" ? shown + end : shown;
}

/** Formats a schedule as `--format` says. */
function showSchedule(
  analysis: Analysis,
  flags: ScheduleFlags,
  { columns = 120, color = false }: ScheduleCommandContext,
  memory?: readonly WorkerBytes[],
): string {
  const { schedule } = analysis, { name, updates, lists } = schedule;
  const lowerBound = name === "search" ? boundOf(analysis, flags) : undefined;
  switch (flags.format) {
    case "csv":
      return formatCsv(lists);
    case "pytorch": {
      const must = "the weights must change after the step";
      const received = `${name}, whose updates are ${updates}`;
      ensure(updates === "flush", "write lists for PyTorch", must, received, RangeError);
      return formatTorchCsv(lists);
    }
    case "trace":
      return formatTrace(analysis);
    case "json": {
      const more = { ...memory && { memory }, ...lowerBound !== undefined && { lowerBound } };
      return JSON.stringify({ ...scheduleRecord(analysis), ...more }) + "\n";
    }
    case "svg":
      return formatSvg(analysis);
    case "grid": {
      const isColored = color && flags.out === undefined;
      const options = { columns: Math.max(COLUMNS_MIN, columns), color: isColored };
      const end = [...longestBubbles(analysis), ...memory ? ["", ...memoryLines(memory)] : []];
      return heading(analysis, lowerBound) + edgesLine(analysis) + "\n" +
        formatGrid(analysis, options) + end.map((line) => `${line}\n`).join("");
    }
  }
}

function boundOf({ schedule }: Analysis, { costs, options }: ScheduleFlags): number {
  const limit = options.activationLimit ?? schedule.workers;
  return Number(makespanLowerBound(schedule, costs, limit).toPrecision(12));
}

/** Maximum number of skip edges, and of workers of a placement, that are printed. */
const EDGES_SHOWN = 8, PLACES_SHOWN = 8;

const listUpTo = (texts: readonly string[], most: number) =>
  texts.slice(0, most).join(", ") + (texts.length > most ? " …" : "");

/** Describes skip edges, and the values that workers hold for them. */
function edgesLine({ schedule: { edges = [] }, peakSkips = [] }: Analysis): string {
  if (edges.length === 0) return "";
  const shown = listUpTo(edges.map(formatEdge), EDGES_SHOWN);
  const held = peakSkips.map(shortNumber).join(", ");
  return `skip edges ${shown}: workers hold at most ${held} values and gradients of them\n`;
}

function heading({ schedule, makespan, bubbleRatio }: Analysis, bound: number | undefined): string {
  const { name, workers, stages, microBatches, slices = 1, placement } = schedule;
  const cut = slices > 1 ? ` in ${slices} slices` : "";
  const line = `${name}: ${count(workers, "worker")}, ${count(stages, "stage")}, ` +
    `${count(microBatches, "micro-batch")}${cut}, ` +
    `time ${shortNumber(makespan)}, bubbles ${shortNumber(100 * bubbleRatio)} %`;
  if (bound === undefined) return `${line}\n`;
  const gap = makespan === bound ? "0" : shortNumber(100 * (makespan / bound - 1));
  const places = placement.map((held) => held.map(({ stage }) => stage).join("+"));
  const where = `stages ${listUpTo(places, PLACES_SHOWN)} on workers 0 to ${places.length - 1}`;
  return `${line}\nno order of this placement (${where}) takes less than ` +
    `${shortNumber(bound)}: the gap is at most ${gap} %\n`;
}

/** Makes a schedule by name, with notes on automatic choices. */
function makeSchedule(
  name: string,
  flags: ScheduleFlags,
  context: ScheduleCommandContext,
): { readonly schedule: Schedule; readonly notes?: readonly string[] } {
  let best = Infinity;
  const found: ScheduleOptions["found"] = (schedule, makespan) => {
    if (makespan >= best) return;
    best = makespan;
    const analysis = analyze({ ...schedule, name }, flags.costs);
    context.soFar?.({ text: showSchedule(analysis, flags, context), out: flags.out });
  };
  const isSearch = findSchedule(name).reads?.includes("found") && context.soFar;
  const options = { ...optionsFor(name, flags), ...isSearch && { found } };
  const choice = choiceOf(findSchedule(name).name, flags.asked, options, flags.costs);
  if (choice === undefined) return { schedule: createSchedule(name, options) };
  const { flags: { "pipeline-limit": pipelineLimit, order }, told } = choice;
  return { schedule: createSchedule(name, { ...options, pipelineLimit, order }), notes: [told] };
}

/** Returns the options of a schedule. Only schedules that plan with costs receive them. */
function optionsFor(name: string, flags: ScheduleFlags): ScheduleOptions {
  const options = requiredOptions(flags), { activationLimit = Infinity } = options;
  const { reads = [] } = findSchedule(name),
    limit = flags.memory && activationLimitOf(flags.memory);
  return {
    ...options,
    ...reads.includes("activationLimit") && limit !== undefined &&
      { activationLimit: Math.min(limit, activationLimit) },
    ...reads.includes("recomputeAhead") && { recomputeAhead: flags.isRecomputed },
    ...reads.includes("costs") && { costs: flags.costs },
    ...reads.includes("costs") && reads.includes("edges") && { edges: flags.edges },
  };
}

function requiredOptions({ options }: ScheduleFlags): ScheduleOptions {
  const { workers, microBatches } = options;
  const missing = workers === undefined ? "--workers" : "--micro-batches";
  const must = `${missing} must be given`;
  ensure(workers !== undefined && microBatches !== undefined, "make a schedule", must);
  return { ...options, workers, microBatches };
}

/** Checks that sizes in flags are those of a file. */
function checkSizes(
  cannot: string,
  file: string,
  { workers, microBatches }: Schedule,
  given: Partial<Record<"workers" | "micro-batches", number | undefined>>,
): void {
  const held = { workers, "micro-batches": microBatches } as const;
  for (const flag of ["workers", "micro-batches"] as const) {
    const must = `--${flag} must be ${held[flag]}, as in ${file}, or left out`;
    const isSame = given[flag] === undefined || given[flag] === held[flag];
    ensure(isSame, cannot, must, given[flag], RangeError);
  }
}

function readSchedule(
  path: string,
  { options }: ScheduleFlags,
  { readTextFile }: ScheduleCommandContext,
): Schedule {
  if (!readTextFile) {
    throw new TypeError(`Cannot read ${path}: the command must be given a way to read files`);
  }
  const name = path.replace(/^.*[\\/]/s, "").replace(/\.csv$/, "").replace(/\p{Cc}/gu, "?");
  const schedule = scheduleFromLists(name, parseCsv(readTextFile(path)));
  const { workers, microBatches, ...others } = options;
  refuseUnread({ name, reads: [] }, others);
  checkSizes(`show ${path}`, "the file", schedule, { workers, "micro-batches": microBatches });
  return schedule;
}

/** Flags that may contradict the file. */
type Given = GivenFlags<typeof SCHEDULE_FLAGS> & { readonly "micro-batches"?: number };

/**
 * Makes the schedule of `--schedule-file`, with the workers and micro-batches of the file.
 *
 * @throws {SyntaxError} if a cell is not an action.
 * @throws {RangeError} if the lists cannot run, or a flag contradicts the file.
 * @throws {TypeError} if a schedule is named as well.
 */
export function readScheduleFile(path: string, text: string, given: Given): ListedSchedule {
  const must = "the schedule must come from one place";
  ensure(given.schedule === undefined, "train", must, "--schedule and --schedule-file");
  const name = inOneLine(basename(path).replace(/\.csv$/, ""));
  const schedule = scheduleFromLists(name, parseCsv(text));
  assertValid(schedule);
  checkSizes("use --schedule-file", quoted(path), schedule, given);
  return schedule;
}

/** Lists all schedules. */
function list({ format }: ScheduleFlags): string {
  const entries = scheduleDefinitions.flatMap(({ name, aliases = [], summary }) => [
    { name, summary },
    ...aliases.map((alias) => ({ name: alias, summary: `another name of ${name}`, aliasOf: name })),
  ]);
  if (isJson("the list", format)) return JSON.stringify(entries) + "\n";
  const rows = entries.map(({ name, summary }) => [name, summary]);
  return formatTable(rows, { left: [0, 1] }).map((line) => `${line}\n`).join("");
}

/** Simulates candidates and 1F1B with varying times and unequal work. */
function jitter(flags: ScheduleFlags): string {
  const { format, asked } = flags, isSvg = format === "svg";
  const isRecord = !isSvg && isJson("varying times", format, "grid, json or svg");
  const trials = trialsOf(flags, requiredOptions(flags));
  if (isSvg) return formatTrialsSvg(trials);
  if (!isRecord) return formatTrials(trials, asked.candidates === undefined);
  const costs = costsOfTrials(flags);
  return JSON.stringify(trials.map((trial) => trialRecord(trial, costs))) + "\n";
}

/** The columns of a comparison, and the reason for the default of `train`. */
const COLUMNS_HELP = `\
bubble       share of the workers' time in which no action runs
time         time of a step; a forward of 1/D of the model takes 1, a backward 2, a message 0, unless
             flags give other costs
activations  most activations of a worker, from the least to the most of all workers; 1 is those of
             1/D of the model for one micro-batch
weights      copies of 1/D of the weights in a worker
hops         messages between workers in the forward of a micro-batch
workers      number of workers
skips        most values and gradients of skip edges in a worker, with --skip-edges
memory       MiB of a worker at its peak, with the bytes of the model

These are simulations in which each action takes exactly its cost. The default of train is
message-driven: a worker runs the actions whose inputs have arrived. In the simulation it takes less
time than 1f1b, and no worker holds more activations than the fullest worker of 1f1b. On a machine,
where times vary, a worker does not wait for a late input while another action is ready. Schedules with
fewer bubbles hold more activations, send more messages or split the backward. To measure a schedule
with a model: ${commandLine("train", "--schedule NAME --trace FILE")}
`;

/** Compares the named schedules, or all. */
function compare(flags: ScheduleFlags, { soFar }: ScheduleCommandContext): string {
  const isRecord = isJson("a comparison", flags.format), { out, words: [, ...names] } = flags;
  type Compared = ReturnType<typeof compareSchedules>;
  const shown = (compared: Compared) => {
    if (!isRecord) return `${formatComparison(compared)}\n${COLUMNS_HELP}`;
    const records = compared.analyses.map((analysis, i) => {
      const { placement: _, ...record } = scheduleRecord(analysis), memory = compared.memory?.[i];
      const { hops, schedule: { updates } } = analysis;
      return { ...record, hops, updates, ...memory && { memory } };
    });
    return JSON.stringify(records) + "\n";
  };
  const found = (compared: Compared) => soFar?.({ text: shown(compared), out });
  const compared = { ...flags, ...names.length > 0 && { names }, found };
  return shown(compareSchedules(requiredOptions(flags), flags.costs, compared));
}

/** Returns whether a format is JSON. @throws {RangeError} if it is neither JSON nor a grid. */
function isJson(what: string, format: ScheduleFlags["format"], known = "grid or json"): boolean {
  const must = `its --format must be ${known}`;
  ensure(["grid", "json"].includes(format), `show ${what}`, must, format, RangeError);
  return format === "json";
}
