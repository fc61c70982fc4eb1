/**
 * The flags of schedules, for `troupe schedule` and `troupe train`.
 *
 * @module
 */

import {
  readCost,
  readFromZero,
  readListOf,
  readSize,
  readSizes,
  readSlowWorker,
} from "../../actors/options/limits.ts";
import { SCHEDULE_FIELDS } from "../../actors/options/train_fields.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import { inMiB } from "../../schedules/analysis/memory.ts";
import { foundOf } from "../../actors/planner/costs.ts";
import { type Profile, readProfile } from "../../actors/planner/profile.ts";
import {
  ASSUMED,
  chooseTrial,
  mailboxCandidates,
  readCandidate,
  readScenario,
  SCENARIO_LAWS,
  scheduleCandidates,
} from "../../schedules/internal.ts";
import {
  type Costs,
  createSchedule,
  findSchedule,
  type MemoryBudget,
  type Schedule,
  scheduleNames,
  type ScheduleOptions,
  type SkipEdge,
  type Trial,
  tryCandidates,
  withRecomputation,
  type WorkerBytes,
} from "../../schedules/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  flagOf,
  flagsOf,
  flagsOfOptions,
  type FlagValues,
  type GivenFlags,
  optionsOfFlags,
} from "../flag.ts";
import { parseArguments } from "../parse.ts";
import { ensure } from "../terminal.ts";

/** Flags that may be `auto`, and those of its trials. */
type AutoFlags = GivenFlags<
  & typeof PARAMETER_FLAGS
  & Pick<typeof COST_FLAGS, "jitter">
  & Pick<typeof VARYING_FLAGS, "candidates" | "profile">
>;

/** Returns whether a flag is `auto`. @throws {RangeError} if the schedule is not message-driven. */
function isAuto(name: string, { order, "pipeline-limit": limit }: AutoFlags): boolean {
  if (limit !== "auto" && order !== "auto") return false;
  const flag = order === "auto" ? "--order" : "--pipeline-limit";
  const must = "the schedule must be message-driven";
  ensure(name === "message-driven", `use ${flag} auto`, must, name, RangeError);
  return true;
}

/**
 * Chooses the values of flags that are `auto`; undefined if none is. The choice depends on the flags
 * only, so every rank makes the same one.
 *
 * @throws {RangeError} if the schedule is not message-driven.
 */
export function choiceOf(
  name: string,
  flags: AutoFlags,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  costs: Costs,
) {
  if (!isAuto(name, flags)) return undefined;
  const { jitter = ASSUMED.jitter } = flags;
  const asked = { ...size, ...optionsOfFlags(SCHEDULE_FIELDS, flags) };
  const options = { costs, scenarios: [scenarioOf(jitter)] };
  const trials = tryCandidates(mailboxCandidates(asked), size, options);
  const { pipelineLimit: limit, order: hint } = chooseTrial(trials).options ?? {};
  return {
    flags: { ...limit && { "pipeline-limit": limit }, ...hint && { order: hint }, jitter },
    told: choiceText(trials),
  };
}

/** The scenario of `--jitter`. */
const scenarioOf = (jitter: number): string => jitter === 0 ? "none" : `above:${jitter}`;

/** Flags in place of `--schedule auto`, and the reason. */
export type ScheduleChoice = ReturnType<typeof rankSchedules>[number];

/**
 * Ranks the schedules that `--schedule auto` tries, the shortest simulated step first. The result
 * depends on the flags and the profile only.
 */
export function rankSchedules(
  { jitter = ASSUMED.jitter, profile }: AutoFlags,
  size: Pick<ScheduleOptions, "workers" | "microBatches">,
  costs: Costs,
) {
  const trials = tryCandidates(scheduleCandidates(size), size, {
    costs: costsWith(profile, costs),
    scenarios: [scenarioOf(jitter)],
  });
  const [known] = trials, by = profile === undefined ? "costs of flags" : "costs of the profile";
  return trials.toSorted((a, b) => a.mean - b.mean).map((trial) => {
    const { listed = "message-driven", options, mean, count, send, scenario } = trial;
    const { order, chunks, activationLimit } = options ?? {};
    const own = { order, chunks, "activation-limit": activationLimit };
    const flags: Readonly<Record<string, string | number>> = given({ schedule: listed, ...own });
    const shown = Object.entries(flags).map(([name, value]) => `--${name} ${value}`).join(" ");
    const [fastest, usual] = [mean, known!.mean].map((one) => one.toFixed(1));
    const told =
      `${shown}: the fastest of ${trials.length} candidates that the model and the memory allow; ` +
      `its simulated step takes ${fastest} (1f1b: ${usual}), the mean of ${count} draws with ` +
      `${by}, ${scenario} and messages of ${send}`;
    return { flags: { ...flags, jitter } as typeof flags, told };
  });
}

/** Describes the chosen flags, the reason, and the conditions. */
function choiceText(trials: readonly Trial[]): string {
  const { options, mean, count, send, scenario } = chooseTrial(trials);
  const { pipelineLimit, order } = options!;
  const known = trials.find(({ options }) => options === undefined)!, tried = trials.length - 1;
  const [own, usual] = [mean, known.mean].map((one) => one.toFixed(1));
  return `--pipeline-limit ${pipelineLimit} --order ${order}: the smallest limit ` +
    `of ${tried} candidates whose simulated step, ${own} (1f1b: ${usual}), is within 1 % of the ` +
    `shortest; the mean of ${count} draws with ${scenario} and messages of ${send}`;
}

/** Runs the trials that the flags ask for; without candidates, those of `auto`. */
export function trialsOf(flags: ScheduleFlags, size: ScheduleOptions): Trial[] {
  const { asked, edges, slowWorker, draws, seed, sends, scenarios } = flags;
  const { jitter = ASSUMED.jitter, "pipeline-limit": pipelineLimit = "auto" } = asked;
  const { order = "auto", "activation-limit": activationLimit } = asked;
  const { limitBy, weightBacklog } = size;
  const candidates = asked.candidates?.split(",").map((name) => {
    const candidate = readCandidate(name, size.workers, { limitBy, weightBacklog });
    ensure(candidate, `try ${name}`, `it must be ${CANDIDATES}`, name, RangeError);
    return candidate;
  });
  return tryCandidates(
    candidates ?? mailboxCandidates({ ...size, pipelineLimit, order, activationLimit }),
    { workers: size.workers, microBatches: size.microBatches },
    {
      costs: costsOfTrials(flags),
      ...{ edges, slowWorker, draws, seed, sends },
      scenarios: scenarios ?? [scenarioOf(jitter)],
    },
  );
}

/** Returns the costs of the trials that the flags ask for. */
export const costsOfTrials = ({ asked, costs }: ScheduleFlags): Costs =>
  costsWith(asked.profile, costs);

/** Returns the costs, with those of a profile if there is one. */
const costsWith = (profile: string | undefined, costs: Costs): Costs =>
  profile === undefined ? costs : { ...costs, ...costsOfProfile(readProfile(profile)) };

/** The costs of a profile in those of a forward. */
function costsOfProfile({ layers }: Profile): Costs {
  const atOnce = Math.min(...layers.map((one) => one.atOnce));
  const found = layers.filter((one) => one.atOnce === atOnce).map(foundOf);
  const sum = (name: "forwardMs" | "inputMs" | "weightMs") =>
    found.reduce((all, one) => all + one[name], 0) / found.length;
  const forward = sum("forwardMs");
  return { forward: 1, input: sum("inputMs") / forward, weight: sum("weightMs") / forward };
}

/** A trial as JSON, with the costs of its actions. */
export function trialRecord(trial: Trial, costs: Costs) {
  const { schedule, options, listed: _, isElastic, name: candidate, ...measured } = trial;
  const { order, limitBy = "count", weightBacklog } = options ?? {};
  const { name, placement, injectionLimit } = schedule;
  return {
    ...{ name, candidate, ...options && { pipelineLimit: injectionLimit, order } },
    placement: placement.map((held) => held.map(({ stage }) => stage)),
    hint: order ?? (isElastic ? "list" : null),
    activationLimit: options
      ? options.activationLimit ?? options.pipelineLimit ?? schedule.workers
      : null,
    limitBy,
    weightBacklog: schedule.weightBacklog ?? weightBacklog ?? null,
    ...measured,
    costs,
  };
}

/** Returns a table of all trials; if they were those of `auto`, with the recommended flags. */
export function formatTrials(trials: readonly Trial[], isChoice: boolean): string {
  const rows = trials.map((trial) => [
    ...[trial.name, trial.scenario, String(trial.send)],
    ...[trial.speedup.mean, trial.speedup.deviation, trial.speedup.least].map((one) =>
      one.toFixed(3)
    ),
    ...[trial.mean, trial.peakActivations, trial.peakBacklog, trial.memory].map((one) =>
      one.toFixed(1)
    ),
  ]);
  const head = ["schedule", "scenario", "send", "speedup", "deviation", "least", "mean time"];
  const lines = formatTable([[...head, "peak", "backlog", "memory"], ...rows], { left: [0, 1] });
  return [...lines, "", ...isChoice ? [choiceText(trials), ""] : []].join("\n");
}

/** Skip edges and the time of their messages. */
const EDGE_FLAGS = {
  "skip-edges": {
    kind: "own",
    value: "EDGES",
    read: readListOf(readEdge),
    must: 'a stage and the later ones that use its value, such as "0>3" or "0>2+3:4MiB,1>2"',
    help:
      "values for stages after the next one; compare, search, jitter: between D parts of the model",
  },
  "skip-send": {
    kind: "own",
    value: "T",
    read: readCost,
    must: "a number from 0, or one for each skip edge with commas between them",
    otherwise: "as --send",
    help: "time of a message over a skip edge; T,T,... for each edge",
  },
} as const;

/** Reads `0>3`, with any number of users and with bytes: `0>2+3:4MiB`. */
function readEdge(text: string): SkipEdge | undefined {
  const [, from, to, size] = /^(\d{1,9})>(\d{1,9}(?:\+\d{1,9})*)(?::(.+))?$/.exec(text) ?? [];
  const bytes = size === undefined ? undefined : readSize(size);
  if (to === undefined || size !== undefined && bytes === undefined) return undefined;
  const edge = { from: Number(from), to: to.split("+").map(Number) };
  return bytes === undefined ? edge : { ...edge, bytes };
}

/** A flag of sizes in bytes, one or several; without it, what `otherwise` says. */
const sizes = (help: string, otherwise?: string) => ({
  kind: "own",
  value: "SIZE",
  read: readSizes,
  must: "a size such as 512MiB, 1000000 or 0, or several with commas between them",
  help,
  ...otherwise !== undefined && { otherwise },
} as const);

/** A size in bytes. */
export const SIZE_FLAG = {
  kind: "own",
  value: "SIZE",
  read: readSize,
  must: "a size of at least one byte such as 512MiB, 2GiB or 1000000",
} as const;

/** Bytes of stages. */
const MEMORY_FLAGS = {
  "weight-bytes": sizes("weights of 1/D of the model; SIZE,SIZE,... for slices of it"),
  "gradient-bytes": sizes("gradients of these weights", "as weights"),
  "optimizer-bytes": sizes("optimizer states of these weights", "twice the weights"),
  "activation-bytes": sizes("activations of a micro-batch for 1/D of the model"),
  "kept-bytes": sizes("activations that F keeps if R recomputes the others", "0"),
  "input-freed-bytes": sizes("activations that I frees; W frees the rest", "0"),
  "message-bytes": {
    ...SIZE_FLAG,
    must: "a size of at least one byte such as 2MiB or 1000000",
    otherwise: "0",
    help: "message to the next stage for a micro-batch",
  },
  "memory-limit": {
    ...SIZE_FLAG,
    help: "refuse schedules that need more on a worker; compare: omit them",
  },
} as const;

/**
 * Returns the bytes in flags; undefined if there are none.
 *
 * @throws {TypeError} if there is a limit without bytes.
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
  const must = "--weight-bytes or --activation-bytes must be given beside --memory-limit";
  ensure(limitBytes === undefined, "limit memory", must, "neither");
}

/** Returns a table of the peak bytes of workers. */
export function memoryLines(workers: readonly WorkerBytes[]): string[] {
  const names = ["weights", "gradients", "optimizer", "activations"] as const;
  const rows = workers.map((bytes, worker) => [
    ...[String(worker), ...names.map((name) => inMiB(bytes[name])), inMiB(bytes.peak)],
  ]);
  return formatTable([["worker", ...names, "in all"], ...rows], { left: [] });
}

/** The parameters of a schedule. */
const PARAMETER_FLAGS = flagsOfOptions(SCHEDULE_FIELDS);

/** A flag of a cost; without it, what `otherwise` says. */
const cost = (help: string, otherwise: string) => ({
  kind: "own",
  value: "T",
  read: readCost,
  must: "a number from 0, or several with commas between them",
  ...{ help, otherwise },
} as const);

/** Costs of actions. */
export const COST_FLAGS = {
  forward: cost("time of a forward of 1/D of the model; T,T,... for parts of it", "1"),
  backward: cost("time of a full backward", "2"),
  input: cost("time of the input part", "half of it"),
  weight: cost("time of the weight part", "half of it"),
  recomputation: cost("time to recompute a forward (R)", "a forward"),
  overlap: {
    kind: "number",
    value: "T",
    otherwise: "the sum",
    help: "time of an overlapped forward and backward",
  },
  send: cost("time of a message", "0"),
  jitter: {
    kind: "number",
    value: "J",
    otherwise: String(ASSUMED.jitter),
    help: "auto: actions take up to J times longer; 0.5 means up to 50 %",
  },
} as const;

const { workers, schedule, policy, layout, scheduleOptions } = TRAIN;

const PROFILE = {
  kind: "path",
  help: "costs of actions by troupe profile --out FILE",
} as const;

/** The options of `train()` that choose the schedule. */
export const SCHEDULE_OPTIONS = { workers, schedule, policy, layout, scheduleOptions } as const;

/** The schedule of a run, and its parameters. */
export const SCHEDULE_FLAGS = {
  workers: flagOf(workers),
  schedule: {
    ...flagOf(schedule),
    choices: [...scheduleNames(), "auto"],
    help: "order of actions; see troupe schedule list; auto: the fastest by simulation that fits",
  },
  "schedule-file": { kind: "path", value: "CSV", help: "action lists, a row for each worker" },
  policy: flagOf(policy),
  layout: flagOf(layout),
  profile: { ...PROFILE, help: `auto: ${PROFILE.help}` },
  ...PARAMETER_FLAGS,
} as const;

/** Flags of a schedule, except for its size. */
type ScheduleParameters = FlagValues<typeof PARAMETER_FLAGS> & FlagValues<typeof COST_FLAGS> & {
  readonly schedule?: string;
  readonly "schedule-file"?: string;
};

/** Returns the costs in flags. */
export function costsOf(flags: FlagValues<typeof COST_FLAGS>): Costs {
  const { forward, backward, input, weight, recomputation, overlap, send } = flags;
  return { forward, backward, input, weight, recompute: recomputation, overlap, send };
}

/** Returns the options of the schedule that the flags name, without values that are `auto`. */
export function scheduleOptionsOf(flags: ScheduleParameters): Partial<ScheduleOptions> {
  const named = flags["schedule-file"] ? undefined : flags.schedule;
  const recomputes = flags["recompute-ahead"] && named !== undefined &&
    findSchedule(named).reads?.includes("recomputeAhead");
  const isChosen = flags.jitter !== undefined && named !== undefined &&
    !findSchedule(named).reads?.includes("costs");
  const { recomputeAhead: _, ...parameters } = optionsOfFlags(SCHEDULE_FIELDS, flags);
  return {
    ...parameters,
    pipelineLimit: decided(flags["pipeline-limit"]),
    order: decided(flags.order),
    ...recomputes && { recomputeAhead: true },
    // With a jitter, costs only served to choose the schedule, or its limit and order.
    costs: isChosen ? undefined : costsOf(flags),
  };
}

/** Returns the schedule of a run: that of its file, or the named one. */
export function scheduleOf(
  flags: ScheduleParameters & {
    schedule: string;
    workers: number;
    "micro-batches": number;
    policy?: string;
  },
  fromFile?: Schedule,
): Schedule {
  const { workers, "micro-batches": microBatches } = flags;
  const options = { ...scheduleOptionsOf(flags), workers, microBatches };
  // Limits that the schedule itself does not read are those of the elastic policy.
  const { activationLimit: _, weightBacklog: __, ...others } = options;
  const isOfPolicy = flags.policy === "elastic" &&
    !findSchedule(flags.schedule).reads?.includes("activationLimit");
  const made = fromFile ?? createSchedule(flags.schedule, isOfPolicy ? others : options);
  return flags["recompute-ahead"] && !options.recomputeAhead ? withRecomputation(made) : made;
}

const decided = <T>(value: T | "auto"): T | undefined => value === "auto" ? undefined : value;

const SIZE_FLAGS = {
  workers: { kind: "integer", value: "D", help: "workers of a pipeline" },
  "micro-batches": { kind: "integer", value: "N", help: "micro-batches of a step" },
} as const;

const SHOWING_FLAGS = {
  format: {
    kind: "choice",
    choices: ["grid", "csv", "pytorch", "json", "svg", "trace"],
    otherwise: "csv, json or svg if --out ends so, or grid",
    help: "output format; pytorch is CSV for PyTorch, trace is for Perfetto",
  },
  out: { kind: "path", help: "output file" },
  ...COMMON_FLAGS,
} as const;

/** The names of candidates. */
const CANDIDATES =
  "fifo, backward-first, bf or bfw, with :M for limits such as 12 or 1.5D; bf and bfw with -v for a " +
  "V, bfw with :M:K for the backlog; or a schedule, with :elastic for its list as a hint";

const VARYING_FLAGS = {
  "slow-worker": {
    kind: "own",
    value: "W,T",
    read: readSlowWorker,
    must: "a worker and a number above 0, such as 1,1.5",
    help: "actions of worker W take T times as long",
  },
  draws: { kind: "integer", value: "S", otherwise: "32 or fewer", help: "simulated steps of each" },
  seed: { kind: "integer", value: "S", minimum: 0, otherwise: "0", help: "seed of the first draw" },
  candidates: {
    kind: "text",
    value: "NAME,NAME",
    otherwise: "limits and orders of auto",
    help: `what to compare with 1f1b: ${CANDIDATES}`,
  },
  scenario: {
    kind: "own",
    value: "LAW,LAW",
    read: readListOf((text) => readScenario(text) && text),
    must: `laws with their amounts: ${Object.keys(SCENARIO_LAWS).join(", ")}`,
    otherwise: "above:J",
    help: `what varies in a draw: ${
      Object.entries(SCENARIO_LAWS).map(([law, { help }]) => `${law}${help}`).join(", ")
    }`,
  },
  sends: {
    kind: "own",
    value: "T,T",
    read: readListOf(readFromZero),
    must: "numbers from 0 with commas between them",
    otherwise: "--send, or 0.2",
    help: "times of a message, each with each scenario",
  },
  profile: PROFILE,
} as const;

const GROUPS = {
  "The pipeline:": SIZE_FLAGS,
  "Parameters of some schedules:": PARAMETER_FLAGS,
  "Costs of actions:": COST_FLAGS,
  "Skip edges:": EDGE_FLAGS,
  "Memory of stages, in bytes:": MEMORY_FLAGS,
  "Variation of times, for jitter:": VARYING_FLAGS,
  "Output:": SHOWING_FLAGS,
} as const;

const FLAGS = flagsOf({ groups: GROUPS });

/** The declaration of `troupe schedule`. */
export const SCHEDULE_SYNTAX: CommandSyntax = {
  name: "schedule",
  summary: "shows, lists and compares schedules",
  usage: [
    "NAME --workers D --micro-batches N [flags]",
    "FILE.csv [flags]     your own lists, or PyTorch's",
    "list                 all names",
    "compare [NAME…] --workers D --micro-batches N [flags]",
    "jitter --workers D --micro-batches N [flags]   candidates with varying times and work",
  ],
  words: ["list", "compare", "jitter", ...scheduleNames()],
  groups: GROUPS,
  notes: ["Exit codes: 0 shown; 2 bad input."],
};

/** Flags of `troupe schedule`, as the command uses them. */
export type ScheduleFlags = ReturnType<typeof parseScheduleFlags>;

/** Returns the format that the name of a file ends with. */
const formatIn = (out = "") =>
  (["csv", "json", "svg"] as const).find((one) => out.endsWith(`.${one}`));

/**
 * Reads the flags of `troupe schedule`; each must be given at most once.
 *
 * @throws {TypeError} if a flag is unknown, has no value, or is given twice.
 * @throws {RangeError} if a value is invalid.
 */
export function parseScheduleFlags(args: readonly string[]) {
  const { flags, words } = parseArguments(args, FLAGS, { takesWords: true, isStrict: true });
  const { costs: _, ...options } = scheduleOptionsOf(flags);
  const { "skip-edges": edges, "skip-send": skip, draws, out } = flags;
  const { format = formatIn(out) ?? "grid" } = flags;
  const must = "--skip-edges must be given";
  ensure(skip === undefined || edges !== undefined, "use --skip-send", must);
  refuseIgnored(words[0] ?? "none", flags);
  const sizes = { workers: flags.workers, microBatches: flags["micro-batches"] };
  const hasBytes = edges?.some(({ bytes }) => bytes !== undefined);
  return {
    ...{ words, edges, draws, format, out },
    options: given({ ...sizes, ...options }) as Partial<ScheduleOptions>,
    costs: given({ ...costsOf(flags), skip }) as Costs,
    memory: memoryBudgetOf(flags) ?? (hasBytes ? { bytes: {} } : undefined),
    isRecomputed: flags["recompute-ahead"] ?? false,
    /** Flags that may be `auto`, and the variation of times. */
    asked: flags satisfies AutoFlags as AutoFlags,
    slowWorker: flags["slow-worker"],
    scenarios: flags.scenario,
    sends: flags.sends,
    seed: flags.seed,
  };
}

/** Flags that trials do not read. */
const NOT_TRIED = [
  ...["slices", "waves", "pipelines", "scale", "weight-limit", "recompute-ahead", "recomputation"],
  ...Object.keys(MEMORY_FLAGS),
];

/** Flags that trials read unless another one is given. */
const INSTEAD = {
  candidates: ["pipeline-limit", "order", "activation-limit", "chunks"],
  scenario: ["jitter"],
  sends: ["send"],
} as const;

/** Refuses flags that the command would ignore. */
function refuseIgnored(command: string, flags: GivenFlags<typeof FLAGS>): void {
  const isGiven = (name: string) => flags[name as "seed"] !== undefined;
  const refuse = (names: readonly string[], must: string, received: unknown = command) => {
    const name = names.find(isGiven);
    ensure(name === undefined, `use --${name}`, must, received);
  };
  if (command !== "jitter") {
    refuse(Object.keys(VARYING_FLAGS), "the command must be troupe schedule jitter");
    const must = "--order or --pipeline-limit must be auto";
    return isAuto(command, flags) ? undefined : refuse(["jitter"], must);
  }
  refuse(NOT_TRIED, "the command must not be troupe schedule jitter");
  for (const [other, names] of Object.entries(INSTEAD)) {
    if (isGiven(other)) refuse(names, `--${other} must not be given`, flags[other as "seed"]);
  }
}

/** Returns the values that are not undefined. */
const given = (values: object) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
