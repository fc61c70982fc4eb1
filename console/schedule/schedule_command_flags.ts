/**
 * The flags of `troupe schedule`.
 *
 * @module
 */

import {
  type Costs,
  scheduleNames,
  type ScheduleOptions,
  type SkipEdge,
} from "../../schedules/mod.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { parseArguments } from "../flags/parse.ts";
import { readSlowWorker } from "../flags/quantities.ts";
import type { AskedFlags } from "./chosen_mailbox.ts";
import { EDGE_FLAGS } from "./edge_flags.ts";
import { MEMORY_FLAGS, memoryBudgetOf } from "./memory_flags.ts";
import {
  COST_FLAGS,
  costsOf,
  PARAMETER_FLAGS,
  SCHEDULE_FLAGS,
  scheduleOptionsOf,
} from "./schedule_flags.ts";

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
