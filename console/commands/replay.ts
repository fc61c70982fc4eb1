/**
 * `troupe replay`: makes a recorded run again, whole or one actor of it, and compares every step.
 *
 * @module
 */

import { join } from "node:path";
import { commandLine } from "../../actors/options/limits.ts";
import { TRAINING_ACTORS } from "../../actors/run/run_journal.ts";
import type { ActorSpec, Message } from "../../actors/runtime/mod.ts";
import type { SimulatedTrainingOptions } from "../../actors/simulated_training/mod.ts";
import {
  loadExample,
  simulatedTrainingOf,
} from "../../actors/simulated_training/simulated_training.ts";
import { payloadOf } from "../../actors/simulation/journal.ts";
import {
  describeStep,
  type Fault,
  type Journal,
  readJournal,
  replayInbox,
  replayJournal,
  type ReplayOptions,
  type StepRecord,
} from "../../actors/simulation/mod.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import type { CommandContext } from "../command.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  DASHBOARD_FLAGS,
  type Flags,
  type GivenFlags,
} from "../flag.ts";
import { answersItself, helpOf, parseFlags, type RawArguments, rawArguments } from "../parse.ts";
import { isCount } from "../run_files/timeline_file.ts";
import { print } from "../terminal.ts";
import { shellWord } from "../train/data_files.ts";
import { TRAIN_FLAGS } from "../train/flags.ts";
import { describeEnds } from "./journal.ts";
import { type AnyFactory, loneFactory } from "./replay_actor.ts";

/** A run that is recorded. */
type RecordedRun =
  /** Of `troupe train`, with these arguments. */
  | { readonly kind: "training"; readonly args: readonly string[] }
  /** Of `troupe explore SCHEDULE`. */
  | {
    readonly kind: "rehearsal";
    readonly plan: SimulatedTrainingOptions;
    readonly faults: readonly Fault[];
  }
  /** Of `troupe explore FILE`. */
  | {
    readonly kind: "scenario";
    readonly file: string;
    readonly configuration: unknown;
    readonly faults: readonly Fault[];
  };

/** Arguments of a command: more are no command that a person typed. */
const MAX_ARGUMENTS = 256, MAX_ARGUMENT_LENGTH = 4096;

/** Workers × micro-batches × replicas × steps of a rehearsal. */
const MAX_REHEARSED = 2 ** 16;

/** The most that a rehearsal has of each where nothing is said. */
const SIZES = { workers: 4, microBatches: 8, replicas: 2, steps: 1 };

/**
 * What a journal is of.
 *
 * @throws {TypeError} when it is no journal of a command, or says something else than a command does.
 * @throws {RangeError} when what it says is too large.
 */
function readRecordedRun({ header: { configuration } }: Journal): RecordedRun {
  const { train, explore, configuration: inner, faults = [] } = recordOf(configuration);
  if (train !== undefined) return { kind: "training", args: readArguments(train) };
  if (typeof explore !== "string") {
    throw new TypeError(
      "Cannot replay the whole run: the journal must be one of train or explore; use --actor, or " +
        "replayJournal in a program of your own",
    );
  }
  if (!isListOf(faults, isFault)) throw wrong("faults", "a list of steps, kinds and targets");
  if (!scheduleNames().includes(explore)) {
    return { kind: "scenario", file: explore, configuration: inner, faults };
  }
  return { kind: "rehearsal", plan: readPlan(explore, recordOf(inner)), faults };
}

function readArguments(value: unknown): readonly string[] {
  const isArgument = (one: unknown): one is string =>
    typeof one === "string" && one.length <= MAX_ARGUMENT_LENGTH;
  if (isListOf(value, isArgument) && value.length <= MAX_ARGUMENTS) return value;
  throw wrong("train", "the arguments of a command");
}

function readPlan(schedule: string, plan: Record<string, unknown>): SimulatedTrainingOptions {
  const { schedule: named, mayLose = false, ...sizes } = plan;
  if (named !== schedule) throw wrong("schedule", schedule);
  if (typeof mayLose !== "boolean") throw wrong("mayLose", "true or false");
  let product = 1;
  for (const [name, value] of Object.entries({ ...SIZES, ...sizes })) {
    if (!Object.hasOwn(SIZES, name)) throw wrong(JSON.stringify(name), "left out");
    if (!isCount(value) || value === 0) throw wrong(name, "a whole number from 1");
    product *= value;
  }
  if (product > MAX_REHEARSED) {
    throw new RangeError(
      `Cannot replay: ${Object.keys(SIZES).join(" × ")} of the journal must be at most ` +
        `${MAX_REHEARSED}, received ${product}`,
    );
  }
  return { schedule, mayLose, ...sizes };
}

function wrong(name: string, must: string): TypeError {
  return new TypeError(
    `Cannot replay: ${name} of the journal's configuration must be ${must}, received something else`,
  );
}

/** A record, or an empty one in place of what is none. */
function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? value as Record<string, unknown>
    : {};
}

function isListOf<T>(value: unknown, is: (one: unknown) => one is T): value is readonly T[] {
  return Array.isArray(value) && value.every(is);
}

function isFault(value: unknown): value is Fault {
  const { step, kind, target, ...rest } = recordOf(value);
  return isCount(step) && typeof kind === "string" && typeof target === "string" &&
    Object.values(rest).every((one) => ["string", "number", "boolean"].includes(typeof one));
}

/** Flags of `troupe replay` that name what the run read. */
const NAMED_FLAGS = {
  text: TRAIN_FLAGS.text,
  tokens: TRAIN_FLAGS.tokens,
  weights: TRAIN_FLAGS.weights,
  tokenizer: TRAIN_FLAGS.tokenizer,
  "schedule-file": TRAIN_FLAGS["schedule-file"],
  model: TRAIN_FLAGS.model,
  data: TRAIN_FLAGS.data,
  optimizer: TRAIN_FLAGS.optimizer,
  supervisor: TRAIN_FLAGS.supervisor,
  resume: TRAIN_FLAGS.resume,
  "memory-limit": {
    ...TRAIN_FLAGS["memory-limit"],
    otherwise: "4GiB",
    help: "refuse a recorded run that needs more, all its workers together",
  },
} as const;

/** The paths among them, as they were given. */
type NamedFiles = { readonly [Name in keyof typeof NAMED_FLAGS]?: unknown };

/** What a run writes down of itself, and how much it may take, a journal does not decide. */
const OWN: readonly string[] = [
  "journal-messages",
  "journal-full",
  "memory-limit",
  "trace-steps",
  "log",
  ...Object.keys(DASHBOARD_FLAGS),
  "help",
  "version",
];

/** All that a journal decides: no path is among it, and no module. */
const INHERITED = new Set(
  Object.entries(TRAIN_FLAGS as Flags)
    .filter(([name, { kind }]) => kind !== "path" && !OWN.includes(name))
    .map(([name]) => name),
);

/** Most bytes that a recorded run may need unless more is allowed. */
const MEMORY_BYTES = 4 * 2 ** 30;

/**
 * The arguments that make a recorded run again.
 *
 * @param recorded its arguments.
 * @param named what the user names now.
 * @param journal the path of the journal, to say what to type.
 * @throws {TypeError} when the run read a file that is not named.
 * @throws {RangeError} when one is named that the run did not read, or a flag could not be typed.
 */
export function replayedArguments(
  recorded: readonly string[],
  named: NamedFiles,
  journal: string,
): string[] {
  let raw: RawArguments["flags"], takenBack: RawArguments["takenBack"];
  try {
    ({ flags: raw, takenBack } = rawArguments(recorded, TRAIN_FLAGS));
    parseFlags(recorded, TRAIN_FLAGS);
  } catch (error) {
    throw new TypeError(`Cannot replay with the flags of the journal: ${(error as Error).message}`);
  }
  const args = Object.entries(raw)
    .filter(([name, value]) => INHERITED.has(name) && !isModule(name, value))
    .map(([name, value]) => value === true ? `--${name}` : `--${name}=${value}`);
  args.push(...takenBack.filter((name) => INHERITED.has(name)).map((name) => `--no-${name}`));
  // The config of a checkpoint of 0.1.0 has no clip, and its run clips nothing.
  if (raw.clip === undefined && raw.resume === undefined) args.push("--clip=0");
  for (const name of Object.keys(NAMED_FLAGS) as (keyof NamedFiles)[]) {
    if (name === "memory-limit") continue;
    const isOwn = TRAIN_FLAGS[name].kind === "path" || isModule(name, raw[name]);
    const then = isOwn ? raw[name] : undefined, now = named[name];
    if (then === undefined && now === undefined) continue;
    if (now === undefined) throw unnamed(name, String(then), journal);
    if (then === undefined) {
      throw new RangeError(
        `Cannot replay: --${name} must be left out, as in the recorded run, received ${
          JSON.stringify(now)
        }`,
      );
    }
    args.push(`--${name}=${now}`);
  }
  return [...args, `--memory-limit=${workerLimit(recorded, named["memory-limit"])}`];
}

/** Whether a recorded run was traced, as the messages of its workers then tell. */
function wasTraced(recorded: readonly string[]): boolean {
  const { trace, dashboard } = rawArguments(recorded, TRAIN_FLAGS).flags;
  return trace !== undefined || dashboard !== undefined;
}

/** Whether a value names a module of somebody's, and nothing that comes with Troupe. */
function isModule(name: string, value: string | true | undefined): boolean {
  const { kind, choices = [] } = (TRAIN_FLAGS as Flags)[name]!;
  return kind === "part" && typeof value === "string" && !choices.includes(value);
}

/** The error of a file that a journal says was read, and nobody named. */
function unnamed(flag: string, file: string, journal: string): TypeError {
  return new TypeError(
    `Cannot replay: --${flag} must name the file that the run read, as no journal opens one, ` +
      "received none; if you trust it, type: " +
      commandLine("replay", shellWord(journal), `--${flag}`, shellWord(file)),
  );
}

/** Bytes for each worker, as all of them live in one isolate. */
function workerLimit(recorded: readonly string[], given: unknown): number {
  const flags = parseFlags(recorded, TRAIN_FLAGS);
  const { workers = TRAIN_FLAGS.workers.default, replicas = 1 } = flags;
  const total = typeof given === "number" ? given : MEMORY_BYTES;
  const each = Math.max(1, Math.floor(total / (workers * replicas)));
  return Math.min(each, flags["memory-limit"] ?? Infinity);
}

const REPLAY_FLAGS = {
  actor: { kind: "text", value: "ID", help: "replay this actor alone, from what it got" },
  module: {
    kind: "path",
    value: "FILE[#NAME]",
    help: "the module of the scenario, or what makes that actor",
  },
  ...NAMED_FLAGS,
  "code-changed": {
    kind: "switch",
    help: "replay a whole run also where the program is not the one that wrote the journal",
  },
  until: { kind: "integer", minimum: 0, value: "STEP", help: "stop after this step, and show it" },
  ...COMMON_FLAGS,
} as const;

type ReplayFlags = GivenFlags<typeof REPLAY_FLAGS>;

/** Steps shown when a replay stops on the way. */
const STEPS_SHOWN = 20;

/** A handler that compiles a model takes its time. */
const HANG_MS = 300_000;

/** No actors: devices, which may look at the clock, and what writes checkpoints meanwhile. */
const TRUSTED = [
  ...["../../kernels/", "../../actors/checkpoints/"].map((url) =>
    new URL(url, import.meta.url).href
  ),
  "/onnxruntime-web/", // its memory is shared, so it waits for threads, of which it has none
];

/** The declaration of `troupe replay`. */
export const REPLAY_SYNTAX: CommandSyntax = {
  name: "replay",
  summary: "makes a recorded run again and compares every step",
  usage: ["JOURNAL [flags]"],
  about: [
    "Makes a recorded run again and compares every message, state and hash with the journal.",
  ],
  groups: [{ flags: REPLAY_FLAGS }],
  notes: [
    "A journal may be a stranger's: what the run read is opened where it is named here, and nothing",
    "else is; its sizes are bounded.",
    "",
    "Exit codes: 0 it came out as recorded; 1 it did not; 2 bad input.",
  ],
};

/** The program that trains. */
export interface TrainProgram {
  /** URL of its module. */
  readonly module: string;
  /** Runs it by its flags. */
  readonly run: (args: readonly string[], context: CommandContext) => Promise<number>;
}

/**
 * Runs `troupe replay`; returns the exit code.
 *
 * @param train makes a recorded training run again, in the system of its context.
 */
export async function replayCommand(
  args: readonly string[],
  context: CommandContext,
  train: TrainProgram,
): Promise<number> {
  const [path, ...rest] = args;
  if (args.length === 0) return print(helpOf(REPLAY_SYNTAX)), 0;
  if (answersItself(args, REPLAY_SYNTAX)) return 0;
  if (path!.startsWith("-")) {
    throw new TypeError(`Cannot replay: the first argument must be a JOURNAL, received ${path}`);
  }
  const flags = parseFlags(rest, REPLAY_FLAGS);
  checkInputFile(path!);
  const journal = await readJournal(path!);
  const replay = flags.actor === undefined
    ? await wholeRun({ journal, path: path!, flags, context, train })
    : await oneActor(journal, flags.actor, flags.module);
  context.begin();
  const shown: StepRecord[] = [];
  try {
    const outcome = await replay((step) => {
      shown.push(step);
      if (step.n === flags.until) throw new Reached();
    });
    print(`${outcome}${describeEnds(journal)}`);
  } catch (error) {
    if (error instanceof Reached) print(stopped(shown, flags));
    else throw error;
  }
  return 0;
}

/** A replay has come as far as was asked for. */
class Reached extends Error {}

function stopped(steps: readonly StepRecord[], { until }: ReplayFlags): string {
  return [...steps.slice(-STEPS_SHOWN).map(describeStep), `As recorded up to step ${until}.`]
    .join("\n");
}

/** Makes a replay; it calls back after each step and returns what to say at its end. */
type Replay = (onStep: (step: StepRecord) => void) => Promise<string>;

/** What makes an actor, whatever it is. */
type AnySpec = ActorSpec<unknown, Message>;

async function oneActor(journal: Journal, id: string, module?: string): Promise<Replay> {
  const actor = module === undefined ? await knownActor(journal, id) : readSpec(module);
  return async (onStep) => {
    const options = { id, trusted: TRUSTED, hangMs: HANG_MS, onStep };
    const { steps, compared, states } = await replayInbox(actor, journal, options);
    return `${id}: ${steps} messages, ${compared} doings and ${states} states as recorded`;
  };
}

function readSpec(text: string): AnySpec {
  const [file, name] = text.split("#");
  if (!file || !name) {
    throw new TypeError(`Cannot replay: --module must be like actors.ts#counter, received ${text}`);
  }
  return { module: new URL(file, `file://${Deno.cwd()}/`).href, export: name };
}

/** The actors of training are known by the export that makes them. */
async function knownActor(journal: Journal, id: string): Promise<AnyFactory> {
  const { steps, payloads } = journal, first = steps.find(({ actor }) => actor === id);
  if (!first) {
    const ids = [...new Set(steps.map(({ actor }) => actor))].join(", ");
    throw new RangeError(`Cannot replay: --actor must be one of ${ids}, received ${id}`);
  }
  if (payloads.size === 0) {
    throw new RangeError(
      `Cannot replay ${id} alone: the journal must keep messages, as with --journal-messages`,
    );
  }
  const factory = await loneFactory(payloadOf(journal, first));
  if (factory) return factory;
  throw new TypeError(`Cannot replay ${id}: --module must say what makes it, received none`);
}

/** How a whole run is made again. */
interface WholeRun {
  readonly journal: Journal;
  /** Where the journal is. */
  readonly path: string;
  readonly flags: ReplayFlags;
  readonly context: CommandContext;
  readonly train: TrainProgram;
}

/** A recorded run, made again as its configuration says. */
async function wholeRun(whole: WholeRun): Promise<Replay> {
  const { journal, path, flags } = whole, run = readRecordedRun(journal);
  const isScenario = run.kind === "scenario";
  refuseOthers(flags, run.kind === "training" ? NAMED_FLAGS : isScenario ? { module: 0 } : {});
  if (run.kind === "training") {
    const args = replayedArguments(run.args, flags, path);
    const isTraced = wasTraced(run.args);
    return (onStep) => replayTraining(whole, args, isTraced, onStep);
  }
  if (isScenario && flags.module === undefined) throw unnamed("module", run.file, path);
  const { scenario, modules } = isScenario
    ? await loadExample(flags.module!)
    : simulatedTrainingOf(run.plan.schedule, run.plan.mayLose!);
  const options: ReplayOptions<unknown> = {
    configuration: isScenario ? run.configuration : run.plan,
    faults: run.faults,
    actors: modules,
    mayHaveChanged: flags["code-changed"] ?? false,
  };
  return async (onStep) => {
    const { steps, hash, failure } = await replayJournal(journal, scenario, { ...options, onStep });
    const end = failure ? `; it failed as then: ${failure.message}` : "";
    return `${steps} steps as recorded, hash ${hash}${end}`;
  };
}

/** Refuses files that were named for nothing. */
function refuseOthers(flags: ReplayFlags, used: object): void {
  for (const name of ["module", ...Object.keys(NAMED_FLAGS)] as (keyof ReplayFlags)[]) {
    if (flags[name] === undefined || name in used) continue;
    throw new RangeError(
      `Cannot replay: --${name} must be left out, as the recorded run used none, received one`,
    );
  }
}

/** The same program with the same flags, in a simulated system. */
async function replayTraining(
  { journal, flags, context: { signal }, train }: WholeRun,
  args: readonly string[],
  isTraced: boolean,
  onStep: (step: StepRecord) => void,
): Promise<string> {
  const out = await Deno.makeTempDir().catch((cause: Error) => {
    throw new RangeError(
      `Cannot replay: TMPDIR must be a folder that can be written and has room, received ${cause.message}`,
      { cause },
    );
  });
  try {
    const run = await replayJournal(
      journal,
      async ({ system }) => {
        const written = ["--out", out, ...isTraced ? ["--trace", join(out, "trace.json")] : []];
        await train.run([...args, ...written], { begin: () => {}, signal, system });
      },
      {
        actors: [...TRAINING_ACTORS, train.module],
        mayHaveChanged: flags["code-changed"] ?? false,
        trusted: TRUSTED,
        hangMs: HANG_MS,
        onStep,
      },
    );
    const { steps, hash, failure } = run;
    if (!failure) return `${steps} steps as recorded, hash ${hash}`;
    if (failure.kind !== "deadlock") {
      throw new Error(`${steps} steps are as recorded; then the run failed: ${failure.message}`);
    }
    return `${steps} steps as recorded; there the journal ends, as its program was killed`;
  } finally {
    await Deno.remove(out, { recursive: true });
  }
}
