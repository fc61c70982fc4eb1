/**
 * The flags that say which schedule there is: those of `troupe schedule` and of `troupe train`.
 *
 * @module
 */

import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { inMiB } from "../../schedules/analysis/memory.ts";
import { ASSUMED } from "../../schedules/internal.ts";
import {
  chooseMailbox,
  type Costs,
  createSchedule,
  findSchedule,
  type MailboxOrder,
  type MemoryBudget,
  type Schedule,
  scheduleNames,
  type ScheduleOptions,
  type SkipEdge,
  type Trial,
  tryMailboxes,
  withRecomputation,
  type WorkerBytes,
} from "../../schedules/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  type FlagValues,
  type GivenFlags,
  readCost,
  readLimit,
  readSize,
  readSizes,
  readSlowWorker,
} from "../flag.ts";
import { parseArguments } from "../parse.ts";

/** What flags say of it. */
interface AskedFlags {
  readonly "pipeline-limit"?: number | "auto";
  readonly order?: MailboxOrder | "auto";
  readonly "activation-limit"?: number;
  readonly jitter?: number;
}

/**
 * Chooses what is `auto`; undefined where nothing is. It depends on the flags alone, so every rank
 * chooses the same.
 *
 * @throws {RangeError} if another schedule than message-driven is to be served.
 */
export function choiceOf(
  name: string,
  flags: AskedFlags,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  costs: Costs,
) {
  const { "pipeline-limit": pipelineLimit = size.workers, order = "fifo" } = flags;
  const { jitter = ASSUMED.jitter } = flags;
  if (pipelineLimit !== "auto" && order !== "auto") return undefined;
  if (name !== "message-driven") {
    const flag = order === "auto" ? "--order" : "--pipeline-limit";
    throw new RangeError(
      `Cannot use ${flag} auto: the schedule must be message-driven, received ${name}`,
    );
  }
  const asked = { ...size, pipelineLimit, order, activationLimit: flags["activation-limit"] };
  const trials = tryMailboxes(asked, { costs, jitter }), chosen = chooseMailbox(trials);
  return {
    flags: { "pipeline-limit": chosen.pipelineLimit, order: chosen.order, jitter },
    told: inWords(trials, costs, jitter),
  };
}

/** What was chosen, why, and under which conditions. */
function inWords(trials: readonly Trial[], costs: Costs, jitter: number = ASSUMED.jitter): string {
  const { pipelineLimit, order, mean, count } = chooseMailbox(trials);
  const known = trials.find(({ order }) => order === undefined)!;
  const { send = ASSUMED.send } = costs, tried = trials.length - 1;
  return `--pipeline-limit ${pipelineLimit} --order ${order}: of ${tried} the fewest in flight whose ` +
    `simulated step is within 1 % of the shortest, ${mean.toFixed(1)} (1f1b: ` +
    `${known.mean.toFixed(1)}), the mean of ${count} with actions up to ${jitter} times longer ` +
    `and messages of ${send}`;
}

/** All that was tried, as a table, and what is recommended. */
export function formatTrials(trials: readonly Trial[], costs: Costs, jitter?: number): string {
  const rows = trials.map(({ schedule, pipelineLimit, order, mean, least, most }) => [
    schedule.name,
    pipelineLimit === undefined ? "" : String(pipelineLimit),
    order ?? "",
    ...[mean, least, most].map((time) => time.toFixed(1)),
  ]);
  const head = ["schedule", "limit", "order", "mean", "least", "most"];
  const lines = formatTable([head, ...rows], { left: [0, 2] });
  return [...lines, "", inWords(trials, costs, jitter), ""].join("\n");
}

/** Skip edges, and what their messages take. */
const EDGE_FLAGS = {
  "skip-edges": {
    kind: "own",
    value: "EDGES",
    read: readEdges,
    must: 'a stage and the later ones that use its value, such as "0>3" or "0>2+3:4MiB,1>2"',
    help: "values that go beyond the next stage; compare, search: between D parts of the model",
  },
  "skip-send": {
    kind: "own",
    value: "T",
    read: readCost,
    must: "a number from 0, or one for each skip edge with commas between them",
    otherwise: "as --send",
    help: "time of a message over a skip edge; T,T,... for each of them",
  },
} as const;

/** `0>3,1>2`, each with any number of users and with bytes: `0>2+3:4MiB`. */
function readEdges(text: string): readonly SkipEdge[] | undefined {
  const edges = text.split(",").map(readEdge);
  return edges.every((edge) => edge !== undefined) ? edges : undefined;
}

function readEdge(text: string): SkipEdge | undefined {
  const [, from, to, size] = /^(\d{1,9})>(\d{1,9}(?:\+\d{1,9})*)(?::(.+))?$/.exec(text) ?? [];
  if (from === undefined || to === undefined) return undefined;
  const edge = { from: Number(from), to: to.split("+").map(Number) };
  if (size === undefined) return edge;
  const bytes = readSize(size);
  return bytes === undefined ? undefined : { ...edge, bytes };
}

const SIZES = {
  kind: "own",
  value: "SIZE",
  read: readSizes,
  must: "a size such as 512MiB, 1000000 or 0, or several with commas between them",
} as const;

/** What stages hold. */
const MEMORY_FLAGS = {
  "weight-bytes": { ...SIZES, help: "weights of 1/D of the model; SIZE,SIZE,... for slices of it" },
  "gradient-bytes": { ...SIZES, otherwise: "as weights", help: "their gradients" },
  "optimizer-bytes": {
    ...SIZES,
    otherwise: "twice the weights",
    help: "their states of the optimizer",
  },
  "activation-bytes": {
    ...SIZES,
    help: "activations of a micro-batch for 1/D of the model",
  },
  "kept-bytes": {
    ...SIZES,
    otherwise: "0",
    help: "what F keeps of them where R brings back the rest",
  },
  "input-freed-bytes": { ...SIZES, otherwise: "0", help: "what I frees of them; W frees the rest" },
  "message-bytes": {
    kind: "own",
    value: "SIZE",
    read: readSize,
    must: "a size of at least one byte such as 2MiB or 1000000",
    otherwise: "0",
    help: "what a stage hands to the next one for a micro-batch",
  },
  "memory-limit": {
    kind: "own",
    value: "SIZE",
    read: readSize,
    must: "a size of at least one byte such as 512MiB, 2GiB or 1000000",
    help: "refuse what needs more on a worker; compare: leave it out",
  },
} as const;

/**
 * What the flags say of memory; undefined where they say nothing.
 *
 * @throws {TypeError} where there is a limit and nothing that it could limit.
 */
function memoryBudgetOf(flags: GivenFlags<typeof MEMORY_FLAGS>): MemoryBudget | undefined {
  const { "memory-limit": limitBytes } = flags;
  const bytes = {
    weights: flags["weight-bytes"],
    gradients: flags["gradient-bytes"],
    optimizer: flags["optimizer-bytes"],
    activations: flags["activation-bytes"],
    kept: flags["kept-bytes"],
    freedByInput: flags["input-freed-bytes"],
    message: flags["message-bytes"],
  };
  if (Object.values(bytes).some((one) => one !== undefined)) return { bytes, limitBytes };
  if (limitBytes === undefined) return undefined;
  throw new TypeError(
    "Cannot limit memory: --weight-bytes or --activation-bytes must be given beside --memory-limit, received neither",
  );
}

/** What workers hold at their peaks, as a table. */
export function memoryLines(workers: readonly WorkerBytes[]): string[] {
  const head = ["worker", "weights", "gradients", "optimizer", "activations", "in all"];
  const rows = workers.map(({ weights, gradients, optimizer, activations, peak }, worker) => [
    String(worker),
    ...[weights, gradients, optimizer, activations, peak].map(inMiB),
  ]);
  return formatTable([head, ...rows], { left: [] });
}

/** The parameters of a schedule. */
const PARAMETER_FLAGS = {
  chunks: {
    kind: "integer",
    value: "V",
    otherwise: "2",
    help: "interleaved, interleaved-zb, looped-bfs, slimpipe, search: stages on a worker",
  },
  slices: {
    kind: "integer",
    value: "S",
    otherwise: "1",
    help: "seq1f1b, seq1f1b-zb, terapipe, slimpipe: slices of each micro-batch's sequence",
  },
  waves: { kind: "integer", value: "W", otherwise: "1", help: "hanayo, search: waves" },
  pipelines: {
    kind: "integer",
    value: "f",
    otherwise: "1",
    help: "chimera: f pipes down and f up",
  },
  scale: {
    kind: "choice",
    choices: ["direct", "doubling", "halving"],
    otherwise: "direct",
    help: "chimera: how to serve more than D micro-batches",
  },
  "pipeline-limit": {
    kind: "own",
    value: "L|auto",
    read: readLimit,
    must: "a whole number from 1, or auto",
    otherwise: "D",
    help:
      "message-driven, chimera-greedy: micro-batches in flight; auto: see troupe schedule jitter",
  },
  order: {
    kind: "choice",
    choices: ["fifo", "backward-first", "auto"],
    otherwise: "fifo",
    help: "message-driven: which message goes first; auto: see troupe schedule jitter",
  },
  "activation-limit": {
    kind: "number",
    value: "M",
    help: "message-driven, search, elastic: most activations of a worker, in 1/D of a model's",
  },
  "weight-limit": {
    kind: "number",
    value: "M",
    otherwise: "1",
    help: "search: most weights of a worker, in 1/D of the model",
  },
  "recompute-ahead": {
    kind: "switch",
    help: "lists: stages keep only their inputs, and recompute before the gradient comes (R)",
  },
} as const;

const COST = {
  kind: "own",
  value: "T",
  read: readCost,
  must: "a number from 0, or several with commas between them",
} as const;

/** What the actions of a schedule cost. */
export const COST_FLAGS = {
  forward: {
    ...COST,
    otherwise: "1",
    help: "time of a forward of 1/D of the model; T,T,... for parts of it",
  },
  backward: { ...COST, otherwise: "2", help: "time of a full backward" },
  input: { ...COST, otherwise: "half of it", help: "its part for the input" },
  weight: { ...COST, otherwise: "half of it", help: "its part for the weights" },
  recomputation: { ...COST, otherwise: "a forward", help: "time to recompute a forward (R)" },
  overlap: {
    kind: "number",
    value: "T",
    otherwise: "the sum",
    help: "a forward and a backward at once",
  },
  send: { ...COST, otherwise: "0", help: "time of a message" },
  jitter: {
    kind: "number",
    value: "J",
    otherwise: String(ASSUMED.jitter),
    help: "auto: an action takes up to J times longer; 0.5 is up to half as long again",
  },
} as const;

/** The schedule of a run, and its parameters. */
export const SCHEDULE_FLAGS = {
  workers: {
    kind: "integer",
    value: "D",
    maximum: WORKERS_MAX,
    default: 2,
    help: "workers of a pipeline",
  },
  schedule: {
    kind: "choice",
    value: "NAME",
    choices: scheduleNames(),
    default: "message-driven",
    help: "which action a worker runs next; see troupe schedule list",
  },
  "schedule-file": { kind: "path", value: "CSV", help: "action lists, a row for each worker" },
  policy: {
    kind: "choice",
    choices: ["list", "elastic"],
    otherwise: "list",
    help: "lists: to the letter, or later actions early",
  },
  layout: {
    kind: "text",
    value: "E,4|3,H",
    otherwise: "auto: stages of nearly equal work; schedule: of the shortest step",
    help: "layers of each stage: E embedding, H head, a number of blocks or layers",
  },
  ...PARAMETER_FLAGS,
} as const;

/** What flags say of a schedule beside its size; `troupe schedule` has its name from elsewhere. */
type Said = FlagValues<typeof PARAMETER_FLAGS> & FlagValues<typeof COST_FLAGS> & {
  readonly schedule?: string;
  readonly "schedule-file"?: string;
};

/** What the flags say that actions cost. */
export function costsOf(flags: FlagValues<typeof COST_FLAGS>): Costs {
  const { forward, backward, input, weight, recomputation, overlap, send } = flags;
  return { forward, backward, input, weight, recompute: recomputation, overlap, send };
}

/** The options of the schedule that the flags name, once nothing is left to be chosen. */
export function scheduleOptionsOf(flags: Said): Partial<ScheduleOptions> {
  const named = flags["schedule-file"] ? undefined : flags.schedule;
  const recomputes = flags["recompute-ahead"] && named !== undefined &&
    findSchedule(named).reads?.includes("recomputeAhead");
  return {
    pipelineLimit: decided(flags["pipeline-limit"]),
    order: decided(flags.order),
    chunks: flags.chunks,
    slices: flags.slices,
    waves: flags.waves,
    pipelines: flags.pipelines,
    scale: flags.scale,
    activationLimit: flags["activation-limit"],
    weightLimit: flags["weight-limit"],
    ...recomputes && { recomputeAhead: true },
    // With a jitter they were what a limit and an order were chosen for, and nothing else reads them.
    costs: named === "message-driven" && flags.jitter !== undefined ? undefined : costsOf(flags),
  };
}

/** The schedule of a run: that of its file, or the one that its flags name. */
export function scheduleOf(
  flags: Said & { schedule: string; workers: number; "micro-batches": number },
  fromFile?: Schedule,
): Schedule {
  const { workers, "micro-batches": microBatches } = flags;
  const options = { ...scheduleOptionsOf(flags), workers, microBatches };
  const made = fromFile ?? createSchedule(flags.schedule, options);
  return flags["recompute-ahead"] && !options.recomputeAhead ? withRecomputation(made) : made;
}

const decided = <T>(value: T | "auto"): T | undefined => value === "auto" ? undefined : value;

const { kind, value, help } = SCHEDULE_FLAGS.workers;

const SIZE_FLAGS = {
  workers: { kind, value, help },
  "micro-batches": { kind: "integer", value: "N", help: "micro-batches of a step" },
} as const;

const SHOWING_FLAGS = {
  format: {
    kind: "choice",
    choices: ["grid", "csv", "pytorch", "json", "svg", "trace"],
    default: "grid",
    help: "how to show it; pytorch is CSV that PyTorch reads, trace for Perfetto",
  },
  out: { kind: "path", value: "FILE", help: "where to write it" },
  ...COMMON_FLAGS,
} as const;

const VARYING_FLAGS = {
  "slow-worker": {
    kind: "own",
    value: "W,T",
    read: readSlowWorker,
    must: "a worker and a number above 0, such as 1,1.5",
    help: "the actions of worker W take T times as long",
  },
  draws: { kind: "integer", value: "S", otherwise: "32 or fewer", help: "steps of each" },
} as const;

const FLAGS = {
  ...SIZE_FLAGS,
  ...PARAMETER_FLAGS,
  ...COST_FLAGS,
  ...EDGE_FLAGS,
  ...MEMORY_FLAGS,
  ...VARYING_FLAGS,
  ...SHOWING_FLAGS,
} as const;

/** The declaration of `troupe schedule`. */
export const SCHEDULE_SYNTAX: CommandSyntax = {
  name: "schedule",
  summary: "shows, lists and compares schedules",
  usage: [
    "NAME --workers D --micro-batches N [flags]",
    "FILE.csv [flags]     lists of your own, or PyTorch's",
    "list                 all names",
    "compare --workers D --micro-batches N [flags]",
    "jitter --workers D --micro-batches N [flags]   what auto chooses where times vary",
  ],
  words: ["list", "compare", "jitter", ...scheduleNames()],
  groups: [
    { title: "The pipeline:", flags: SIZE_FLAGS },
    { title: "Parameters of some schedules:", flags: PARAMETER_FLAGS },
    { title: "What actions cost:", flags: COST_FLAGS },
    { title: "What goes beyond the next stage:", flags: EDGE_FLAGS },
    { title: "What stages hold, in bytes:", flags: MEMORY_FLAGS },
    { title: "What else varies, for jitter:", flags: VARYING_FLAGS },
    { title: "How it is shown:", flags: SHOWING_FLAGS },
  ],
};

/** Flags of `troupe schedule`, as the command uses them. */
export type ScheduleFlags = ReturnType<typeof parseScheduleFlags>;

/**
 * Reads the flags of `troupe schedule`, each of which may be given but once.
 *
 * @throws {TypeError} if a flag is unknown, has no value, or is given twice.
 * @throws {RangeError} if a value is not what the flag allows.
 */
export function parseScheduleFlags(args: readonly string[]) {
  const { flags, words } = parseArguments(args, FLAGS, { takesWords: true, isStrict: true });
  const { costs: _, ...options } = scheduleOptionsOf(flags);
  const { "skip-edges": edges, "skip-send": skip } = flags;
  const costs = { ...costsOf(flags), skip };
  if (skip !== undefined && edges === undefined) {
    throw new TypeError("Cannot use --skip-send: --skip-edges must be given, received none");
  }
  const sizes = { workers: flags.workers, microBatches: flags["micro-batches"] };
  return {
    /** The words that are no flags. */
    words,
    options: given({ ...sizes, ...options }) as Partial<ScheduleOptions>,
    costs: given(costs) as Costs,
    memory: memoryBudgetOf(flags) ?? (hasBytes(edges) ? { bytes: {} } : undefined),
    edges,
    isRecomputed: flags["recompute-ahead"] ?? false,
    /** What is left to a simulation, and how times vary there. */
    asked: flags as AskedFlags,
    slowWorker: flags["slow-worker"],
    draws: flags.draws,
    format: flags.format ?? "grid" as const,
    out: flags.out,
  };
}

/** The values that are given. */
const given = (values: object) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));

const hasBytes = (edges: readonly SkipEdge[] = []) =>
  edges.some(({ bytes }) => bytes !== undefined);
