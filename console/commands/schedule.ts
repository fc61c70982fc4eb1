/**
 * `troupe schedule`: shows, lists and compares schedules.
 *
 * @module
 */

import { basename } from "node:path";
import { checkInputFile, CSV_BYTES_MAX, decodeText } from "../../kernels/mod.ts";
import {
  activationLimitOf,
  type Analysis,
  analyze,
  assertValid,
  compareSchedules,
  createSchedule,
  findSchedule,
  formatComparison,
  formatCsv,
  formatEdge,
  formatSvg,
  formatTorchCsv,
  type ListedSchedule,
  longestBubbles,
  makespanLowerBound,
  memoryWithin,
  parseCsv,
  refuseUnread,
  type Schedule,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
  scheduleRecord,
  tryMailboxes,
  validate,
  violationError,
  withEdges,
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
import type { CommandContext } from "../command.ts";
import type { GivenFlags } from "../flag.ts";
import { answersItself, helpOf } from "../parse.ts";
import { formatTrace } from "../run_files/chrome_trace.ts";
import { inOneLine, quoted, writeAll } from "../terminal.ts";
import {
  choiceOf,
  formatTrials,
  memoryLines,
  parseScheduleFlags,
  type SCHEDULE_FLAGS,
  SCHEDULE_SYNTAX,
  type ScheduleFlags,
} from "./schedule_flags.ts";

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
function showSchedule(
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

/** What the command needs of the world around it. */
export interface ScheduleCommandContext {
  /** The columns of the terminal; 120 unless given. */
  readonly columns?: number | undefined;
  /** Whether the terminal shows colours; false unless given. */
  readonly color?: boolean | undefined;
  /** Reads a text file, for a schedule that is a CSV file. */
  readonly readTextFile?: ((path: string) => string) | undefined;
  /** Gets what would be given if the command ended now, of a search and a comparison. */
  readonly soFar?: ((result: ScheduleCommandResult) => void) | undefined;
}

/** What the command gives. */
export interface ScheduleCommandResult {
  /** The text to print, or to write where `out` says. It ends with a newline. */
  readonly output: string;
  /** The file to write `output` to; undefined for standard output. */
  readonly out: string | undefined;
}

/**
 * Runs `troupe schedule` with the arguments after the word `schedule`: `NAME` and flags, `list`,
 * `compare` and flags, or a CSV file in the place of the name. It reads nothing but such a file
 * and writes nothing.
 *
 * @throws {TypeError} if a flag is unknown, has no value or is missing.
 * @throws {RangeError} if a value is not served, or if the lists of a file cannot run.
 * @throws {SyntaxError} if a cell of a file is no action.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { scheduleCommand } from "@troupe/troupe/cli";
 *
 * const { output } = scheduleCommand(
 *   ["1f1b", "--workers", "2", "--micro-batches", "2", "--format", "csv"],
 * );
 * strictEqual(output, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
 * ```
 */
export function scheduleCommand(
  args: readonly string[],
  context: ScheduleCommandContext = {},
): ScheduleCommandResult {
  if (args.length === 0 || args[0] === "help" || args.includes("--help")) {
    return { output: `${helpOf(SCHEDULE_SYNTAX)}\n`, out: undefined };
  }
  const flags = parseScheduleFlags(args);
  const [name = "", ...more] = flags.words;
  if (name === "" || more.length > 0) {
    throw new TypeError(
      `Cannot show a schedule: there must be one name, list or compare beside the flags, ` +
        `received ${quoted(flags.words.join(" "))}`,
    );
  }
  const { out } = flags;
  if (name === "list") return { output: listing(flags), out };
  if (name === "compare") return { output: comparison(flags, context), out };
  if (name === "jitter") return { output: varying(flags), out };
  const isFile = name.endsWith(".csv");
  const { schedule: made, told } = isFile
    ? { schedule: readSchedule(name, flags, context), told: undefined }
    : madeFor(name, flags, context);
  const linked = flags.edges && !made.edges ? withEdges(made, flags.edges) : made;
  const recomputes = !isFile && findSchedule(name).reads?.includes("recomputeAhead");
  const schedule = flags.isRecomputed && !recomputes ? withRecomputation(linked) : linked;
  const listed = withLists(schedule, flags.costs);
  const notes = [...checked(listed), ...told === undefined ? [] : [`${told}\n`]];
  const bytes = flags.memory && memoryWithin(listed, flags.memory);
  const shown = showSchedule(analyze(listed, flags.costs), flags, context, bytes);
  return { output: flags.format === "grid" ? shown + notes.join("") : shown, out };
}

/** Runs `troupe schedule`: prints what it gives, or writes it to the file that `--out` names. */
export async function printSchedule(
  args: readonly string[],
  { soFar }: Pick<CommandContext, "soFar"> = {},
): Promise<number> {
  if (answersItself(args, SCHEDULE_SYNTAX)) return 0;
  const isTerminal = Deno.stdout.isTerminal();
  const { output, out } = scheduleCommand(args, {
    color: isTerminal && !Deno.noColor,
    columns: isTerminal ? Deno.consoleSize().columns : undefined,
    readTextFile(path) {
      checkInputFile(path, CSV_BYTES_MAX);
      return decodeText(Deno.readFileSync(path), path);
    },
    soFar: soFar && (({ output, out }) => soFar({ text: output, out })),
  });
  if (out === undefined) writeAll(Deno.stdout, output);
  else await Deno.writeTextFile(out, output);
  return 0;
}

/**
 * A schedule is validated, whoever made it, before it is measured. That sums of gradients are in
 * ascending order is a rule of this package, not a need: PyTorch's looped BFS breaks it, and can be
 * looked at all the same, with a note.
 */
function checked(schedule: ListedSchedule): string[] {
  const violations = validate(schedule);
  const fatal = violations.filter(({ reason }) => reason !== "descending");
  if (fatal.length > 0) throw violationError(schedule, fatal);
  const [first] = violations;
  return first === undefined ? [] : [`cannot be trained with: ${first.message}\n`];
}

/** The schedule that is named, and what was chosen for it. */
function madeFor(
  name: string,
  flags: ScheduleFlags,
  context: ScheduleCommandContext,
): { readonly schedule: Schedule; readonly told: string | undefined } {
  let best = Infinity;
  const found: ScheduleOptions["found"] = (schedule, makespan) => {
    if (makespan >= best) return;
    best = makespan;
    const analysis = analyze({ ...schedule, name }, flags.costs);
    context.soFar?.({ output: showSchedule(analysis, flags, context), out: flags.out });
  };
  const isSearch = findSchedule(name).reads?.includes("found") && context.soFar;
  const options = { ...optionsFor(name, flags), ...isSearch && { found } };
  const choice = choiceOf(findSchedule(name).name, flags.asked, options, flags.costs);
  if (choice === undefined) return { schedule: createSchedule(name, options), told: undefined };
  const { flags: { "pipeline-limit": pipelineLimit, order }, told } = choice;
  return { schedule: createSchedule(name, { ...options, pipelineLimit, order }), told };
}

/** What message-driven schedules take where times vary, beside 1F1B. */
function varying(flags: ScheduleFlags): string {
  const { asked, costs, edges, slowWorker, draws, format } = flags, { jitter } = asked;
  const options = { ...requiredOptions(flags), pipelineLimit: asked["pipeline-limit"] };
  const trials = tryMailboxes({ ...options, order: asked.order }, {
    costs,
    edges,
    jitter,
    slowWorker,
    draws,
  });
  if (format === "grid") return formatTrials(trials, costs, jitter);
  if (format !== "json") throw unsuitable("varying times", format);
  const records = trials.map(({ schedule: { name }, ...trial }) => ({ name, ...trial }));
  return JSON.stringify(records) + "\n";
}

/** The options of a schedule; costs are for those that plan for them, and for the measures of all. */
function optionsFor(name: string, flags: ScheduleFlags): ScheduleOptions {
  const options = requiredOptions(flags);
  const { reads } = findSchedule(name), limit = flags.memory && activationLimitOf(flags.memory);
  const activationLimit = reads?.includes("activationLimit") && limit !== undefined
    ? Math.min(limit, options.activationLimit ?? Infinity)
    : options.activationLimit;
  const limited = {
    ...options,
    ...activationLimit !== undefined && { activationLimit },
    ...reads?.includes("recomputeAhead") && { recomputeAhead: flags.isRecomputed },
  };
  return reads?.includes("costs")
    ? { ...limited, costs: flags.costs, ...reads.includes("edges") && { edges: flags.edges } }
    : limited;
}

function requiredOptions({ options }: ScheduleFlags): ScheduleOptions {
  const { workers, microBatches } = options;
  if (workers !== undefined && microBatches !== undefined) {
    return { ...options, workers, microBatches };
  }
  const missing = workers === undefined ? "--workers" : "--micro-batches";
  throw new TypeError(`Cannot make a schedule: ${missing} must be given, received none`);
}

function readSchedule(
  path: string,
  { options }: ScheduleFlags,
  { readTextFile }: ScheduleCommandContext,
): Schedule {
  if (readTextFile === undefined) {
    throw new TypeError(`Cannot read ${path}: the command must be given a way to read files`);
  }
  const name = path.replace(/^.*[\\/]/s, "").replace(/\.csv$/, "").replace(/\p{Cc}/gu, "?");
  const schedule = scheduleFromLists(name, parseCsv(readTextFile(path)));
  const { workers, microBatches, ...others } = options;
  refuseUnread({ name, reads: [] }, others);
  for (
    const [flag, [given, held]] of Object.entries({
      workers: [workers, schedule.workers],
      "micro-batches": [microBatches, schedule.microBatches],
    })
  ) {
    if (given === undefined || given === held) continue;
    throw new RangeError(
      `Cannot show ${path}: --${flag} must be ${held}, as in the file, or left out, received ${given}`,
    );
  }
  return schedule;
}

function listing({ format }: ScheduleFlags): string {
  const entries = scheduleDefinitions.flatMap(({ name, aliases = [], summary }) => [
    { name, summary },
    ...aliases.map((alias) => ({ name: alias, summary: `another name of ${name}`, aliasOf: name })),
  ]);
  if (format === "json") return JSON.stringify(entries) + "\n";
  if (format !== "grid") throw unsuitable("the list", format);
  const rows = entries.map(({ name, summary }) => [name, summary]);
  return formatTable(rows, { left: [0, 1] }).map((line) => `${line}\n`).join("");
}

/** What the columns of a comparison are, and why `train` does not take its first row. */
const COLUMNS_TOLD = `\
bubble       share of the workers' time in which nothing runs
time         of a step: a forward of 1/D of the model takes 1, a backward 2, a message 0, unless
             flags say otherwise
activations  the most that a worker holds, from the least to the most of all workers: 1 is 1/D of
             the model's for one micro-batch
weights      how often a worker holds 1/D of the model
hops         times that a micro-batch goes from worker to worker on its way forward
workers      how many it takes
skips        the most that a worker holds of what came over skip edges, values and gradients of
             micro-batches, where such edges are given
memory       MiB that a worker needs at its peak, where the bytes of the model are given

All of it on paper: each action takes just what it costs. The default of train is message-driven: a
worker runs what has arrived. On paper it is about as long as 1f1b, and no worker holds more than the
fullest one there; on a machine, where times vary, nobody waits for a late input while another is
there. Those with fewer bubbles hold more, send more, or split backwards in two. What is true of a
model and a machine says: deno task train --schedule NAME --trace FILE
`;

function comparison(flags: ScheduleFlags, { soFar }: ScheduleCommandContext): string {
  if (!["grid", "json"].includes(flags.format)) throw unsuitable("a comparison", flags.format);
  const shown = (all: Compared) => formatCompared(all, flags), { out } = flags;
  const found = (all: Compared) => soFar?.({ output: shown(all), out });
  return shown(compareSchedules(requiredOptions(flags), flags.costs, { ...flags, found }));
}

type Compared = ReturnType<typeof compareSchedules>;

function formatCompared(compared: Compared, flags: ScheduleFlags): string {
  if (flags.format === "grid") return `${formatComparison(compared)}\n${COLUMNS_TOLD}`;
  const records = compared.analyses.map((analysis, i) => {
    const { placement: _, ...record } = scheduleRecord(analysis), memory = compared.memory?.[i];
    const { hops, schedule: { updates } } = analysis;
    return { ...record, hops, updates, ...memory && { memory } };
  });
  return JSON.stringify(records) + "\n";
}

function unsuitable(what: string, format: string): RangeError {
  return new RangeError(
    `Cannot show ${what}: its --format must be grid or json, received ${format}`,
  );
}

/** What was said beside the file. */
type Given = GivenFlags<typeof SCHEDULE_FLAGS> & { readonly "micro-batches"?: number };

/**
 * Makes the schedule of `--schedule-file`. Its workers and micro-batches are those of the file.
 *
 * @throws {SyntaxError} if a cell is no action.
 * @throws {RangeError} if the lists cannot run, or if a flag says something else than the file.
 * @throws {TypeError} if a schedule is named as well.
 */
export function readScheduleFile(path: string, text: string, given: Given): ListedSchedule {
  if (given.schedule !== undefined) {
    throw new TypeError(
      "Cannot train: the schedule must come from one place, received --schedule and --schedule-file",
    );
  }
  const name = inOneLine(basename(path).replace(/\.csv$/, ""));
  const schedule = scheduleFromLists(name, parseCsv(text));
  assertValid(schedule);
  const { workers, microBatches } = schedule;
  for (const [flag, held] of Object.entries({ workers, "micro-batches": microBatches })) {
    const value = given[flag as "workers" | "micro-batches"];
    if (value === undefined || value === held) continue;
    throw new RangeError(
      `Cannot use --schedule-file: --${flag} must be ${held}, as in ${
        quoted(path)
      }, or left out, received ${value}`,
    );
  }
  return schedule;
}
