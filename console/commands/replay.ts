/**
 * `troupe replay` repeats a recorded run, or one actor of it, and compares every step; `troupe
 * journal` prints the journal.
 *
 * @module
 */

import { join } from "node:path";
import * as v from "valibot";
import {
  arrayOf,
  checkData,
  exactObject,
  integer,
  isObject,
  objectOf,
  text as shortText,
} from "../../actors/options/file_schema.ts";
import { isBlackBox } from "../../actors/run/black_box.ts";
import { TRAINING_ACTORS } from "../../actors/run/run_journal.ts";
import type { ActorSpec, Message } from "../../actors/runtime/mod.ts";
import {
  loadExample,
  simulatedTrainingOf,
  type SimulatedTrainingOptions,
} from "../../actors/simulated_training/simulated_training.ts";
import type { Fault } from "../../actors/simulation/faults.ts";
import { type Journal, payloadOf, readJournal } from "../../actors/simulation/journal.ts";
import type { StepRecord } from "../../actors/simulation/recorder.ts";
import { replayJournal, type ReplayOptions } from "../../actors/simulation/replay.ts";
import { replayInbox } from "../../actors/simulation/replay_actor.ts";
import { describeStep } from "../../actors/simulation/shrink.ts";
import { simulate } from "../../actors/simulation/simulate.ts";
import { checkInputFile, refusal } from "../../kernels/internal.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { DASHBOARD_FLAGS, type Flags, type GivenFlags } from "../flag.ts";
import { parseArguments, rawArguments } from "../parse.ts";
import { ensure, inOneLine, print, quietly } from "../terminal.ts";
import { untrusted } from "../train/data_files.ts";
import { TRAIN_FLAGS } from "../train/flags.ts";
import { TRAIN_MODULE, trainCommand } from "../train/train.ts";
import { checkCount, checkWord, type Command, defineCommand } from "./common.ts";
import { singleActorFactory } from "./replay_actor.ts";
import { type BoxedWorker, replayWorker } from "./replay_box.ts";

/** Returns the parts that a journal lacks, as the end of a sentence. */
function describeEnds({ isTorn, unfinished }: Journal): string {
  const torn = isTorn ? "; its last line is torn" : "";
  if (unfinished.length === 0) return torn;
  const isolates = unfinished.join(", ");
  return `${torn}; the end of isolate ${isolates} is missing: it was killed, or the journal was cut`;
}

/** Modules that are listed; the others are counted. */
const MODULES_SHOWN = 8;

/** Columns of the steps. */
const COLUMNS = ["time ms", "isolate", "step", "actor", "message", "chain", "what it did"] as const;

/**
 * Returns a journal as text. Times are relative to its first step. The isolates of a host share a
 * clock, so their steps are sorted by time.
 */
function describeJournal(journal: Journal): string {
  const { header, steps, payloads } = journal;
  const { package: version, seed, strategy, device, deno, configuration, actors } = header;
  const kept = payloads.size > 0 ? `, ${payloads.size} messages kept` : "";
  const isolates = new Set(steps.map(({ isolate }) => isolate)).size;
  const where = isolates > 1 ? ` of ${isolates} isolates` : "";
  return [
    `Troupe ${version}, Deno ${deno}, device ${device}, seed ${seed}, ${strategy}`,
    `configuration ${JSON.stringify(configuration)}`,
    ...describeModules(actors),
    `${steps.length} steps${where}${kept}${describeEnds(journal)}`,
    "Times are since the first step; chain is the running hash of what the actor was sent and did.",
    ...describeSteps(steps),
  ].map(inOneLine).join("\n");
}

function describeModules(hashes: Journal["header"]["actors"]): string[] {
  const modules = Object.entries(hashes), more = modules.length - MODULES_SHOWN;
  return [
    ...modules.slice(0, MODULES_SHOWN).map(([module, hash]) => `${module} ${hash}`),
    ...(more > 0 ? [`and ${more} more modules`] : []),
  ];
}

function describeSteps(steps: readonly StepRecord[]): string[] {
  const ordered = steps.toSorted((a, b) =>
    a.t - b.t || (a.isolate === b.isolate ? a.n - b.n : a.isolate - b.isolate)
  );
  const rows = ordered.map((step) => cellsOf(step, ordered[0]!.t));
  return formatTable([COLUMNS, ...rows], { left: [3, 4, 5, 6] });
}

function cellsOf(step: StepRecord, first: number): readonly string[] {
  const { n, t, isolate, actor, from, type, name, chain, choice = 0, arity = 0 } = step;
  const { waits = 0, faults = [] } = step;
  const notes = [
    ...name ? [name] : [],
    ...waits > 0 ? [`after ${waits} ${waits > 1 ? "timers" : "timer"}`] : [],
    ...choice > 0 ? [`choice ${choice} of ${arity}`] : [],
    ...faults,
  ];
  const message = `< ${from} ${type}`;
  return [(t - first).toFixed(3), `${isolate}`, `${n}`, actor, message, chain, notes.join(", ")]
    .map(inOneLine);
}

/** `troupe journal`. */
export const journalCommand: Command = defineCommand({
  name: "journal",
  summary: "shows a journal, or the first difference of two",
  usage: ["show JOURNAL", "diff JOURNAL JOURNAL"],
  about: [
    "Shows a run message by message, or the first difference of two runs.",
    "",
    "Two journals are compared actor by actor, as real workers share no clock.",
  ],
  words: ["show", "diff"],
  flags: {},
  notes: ["Exit codes: 0 shown, or no difference; 1 a difference; 2 bad input."],
  needsArguments: true,
  run: async ({ words: [what = "", ...paths] }, { begin }) => {
    checkWord("journal", what, ["show", "diff"]);
    checkCount(what, "journals", paths.length, [what === "show" ? 1 : 2]);
    paths.forEach((path) => checkInputFile(path));
    const [first, second] = await Promise.all(paths.map((path) => readJournal(path)));
    begin();
    if (!second) return print(describeJournal(first!));
    const difference = differenceOf(first!, second);
    print(difference ?? "No difference.");
    if (difference !== undefined) return 1;
  },
});

/** Returns the first step at which the first differing actor differs. */
function differenceOf(one: Journal, other: Journal): string | undefined {
  const [left, right] = [one, other].map(({ steps }) => Map.groupBy(steps, ({ actor }) => actor));
  for (const actor of new Set([...left!.keys(), ...right!.keys()])) {
    const [mine = [], theirs = []] = [left!.get(actor), right!.get(actor)];
    const at = Array.from({ length: Math.max(mine.length, theirs.length) }, (_, n) => n)
      .find((n) => mine[n]?.chain !== theirs[n]?.chain || mine[n]?.state !== theirs[n]?.state);
    if (at === undefined) continue;
    const lines = [`- ${describe(mine[at])}`, `+ ${describe(theirs[at])}`];
    return [`${actor} differs first at its step ${at}:`, ...lines.map((line) => `  ${line}`)]
      .map(inOneLine).join("\n");
  }
}

function describe(step: StepRecord | undefined): string {
  if (!step) return "nothing more";
  const { from, type, name, payload, state = "none" } = step;
  return `< ${from} ${type}${name ? ` (${name})` : ""}, message ${payload}, state ${state}`;
}

const { text, tokens, weights, adapter, tokenizer, model, data, optimizer, supervisor, resume } =
  TRAIN_FLAGS;

/** Flags that name the input of the recorded run, with the limit of memory. */
const NAMED_FLAGS = {
  ...{ text, tokens, weights, adapter, tokenizer, "schedule-file": TRAIN_FLAGS["schedule-file"] },
  ...{ model, data, optimizer, supervisor, resume },
  "memory-limit": {
    ...TRAIN_FLAGS["memory-limit"],
    otherwise: "4GiB",
    help: "refuse a recorded run whose workers together need more",
  },
} as const;

/** The values of these flags. */
type NamedFiles = { readonly [Name in keyof typeof NAMED_FLAGS]?: unknown };

/** Flags of output, memory and failover, which a journal must not set. */
const OWN: readonly string[] = [
  "journal-messages",
  "journal-full",
  "memory",
  "memory-limit",
  "trace-steps",
  "log",
  "black-box",
  "failover",
  "buddy",
  "min-workers",
  ...Object.keys(DASHBOARD_FLAGS),
  "help",
  "version",
];

/** Flags that a journal may set: none names a path or a module. */
const INHERITED = new Set(
  Object.entries(TRAIN_FLAGS as Flags)
    .filter(([name, { kind }]) => kind !== "path" && !OWN.includes(name))
    .map(([name]) => name),
);

/** Bytes of a recorded run by default. */
const MEMORY_BYTES = 4 * 2 ** 30;

const REPLAY_FLAGS = {
  actor: { kind: "text", value: "ID", help: "replay only this actor, from its messages" },
  module: {
    kind: "path",
    value: "FILE[#NAME]",
    help: "the module of the scenario, or of the actor",
  },
  ...NAMED_FLAGS,
  "code-changed": {
    kind: "switch",
    help: "replay a whole run with another program than that of the journal",
  },
  until: { kind: "integer", minimum: 0, value: "STEP", help: "stop after this step and show it" },
} as const;

type ReplayFlags = GivenFlags<typeof REPLAY_FLAGS>;

/** A replay that has reached the step of `--until`. */
class Reached extends Error {}

/** Steps that are printed if a replay stops early. */
const STEPS_SHOWN = 20;

/** `troupe replay`. */
export const replayCommand: Command = defineCommand({
  name: "replay",
  summary: "repeats a recorded run and compares every step",
  usage: ["JOURNAL [flags]", "BLACK-BOX --actor ID [flags]"],
  about: [
    "Repeats a recorded run and compares every message, state and hash with the journal.",
  ],
  flags: REPLAY_FLAGS,
  notes: [
    "A journal may come from an untrusted source: only files that are named here are opened, and its",
    "sizes are bounded.",
    "",
    "Exit codes: 0 the same as recorded; 1 different; 2 bad input.",
  ],
  needsArguments: true,
  subject: "a JOURNAL",
  run: async (
    { words: [path = ""], given: flags },
    { begin, signal = new AbortController().signal },
  ) => {
    checkInputFile(path);
    if (isBlackBox(path)) {
      const [outcome, isSame] = await replayWorker(boxedWorker(path, flags), begin);
      print(outcome);
      return isSame ? 0 : 1;
    }
    const journal = await readJournal(path), { actor, until } = flags;
    const replay = actor === undefined
      ? await wholeRun({ journal, path, flags, signal })
      : await oneActor(journal, actor, flags.module);
    begin();
    const shown: string[] = [];
    try {
      const outcome = await replay((step) => {
        shown.push(describeStep(step));
        if (step.n === until) throw new Reached();
      });
      print(`${outcome}${describeEnds(journal)}`);
    } catch (error) {
      if (!(error instanceof Reached)) throw error;
      print([...shown.slice(-STEPS_SHOWN), `As recorded up to step ${until}.`].join("\n"));
    }
  },
});

type OnStep = (step: StepRecord) => void;

/** Runs a replay; returns its outcome as text. */
type Replay = (onStep: OnStep) => Promise<string>;

/** Milliseconds for a handler, which may compile a model. */
const HANG_MS = 300_000;

/** Modules that may use the clock: devices, and writers of checkpoints. */
const TRUSTED = [
  ...["../../kernels/", "../../actors/checkpoints/"].map((url) =>
    new URL(url, import.meta.url).href
  ),
  "/onnxruntime-web/", // it has shared memory, so it waits for threads, although it has none
];

async function oneActor(journal: Journal, id: string, module?: string): Promise<Replay> {
  const first = firstStep(journal, id);
  const actor = module === undefined
    ? await singleActorFactory(payloadOf(journal, first))
    : readSpec(module);
  ensure(actor, `replay ${id}`, "--module must name its module");
  return async (onStep) => {
    const options = { id, trusted: TRUSTED, hangMs: HANG_MS, onStep };
    const { steps, compared, states } = await replayInbox(actor, journal, options);
    return `${id}: ${steps} messages, ${compared} actions and ${states} states as recorded`;
  };
}

/** Returns how a worker of a black box is replayed. */
function boxedWorker(path: string, flags: ReplayFlags): BoxedWorker {
  const { actor, module, until } = flags;
  ensure(actor, "replay a black box", "--actor must name a worker");
  const hasOther = module !== undefined || until !== undefined;
  ensure(!hasOther, "replay a black box", "--module and --until must be left out", "one");
  const limits = { trusted: TRUSTED, hangMs: HANG_MS };
  return {
    ...{ path, actor, limits, mayHaveChanged: flags["code-changed"] ?? false },
    argumentsOf: (recorded, isResumed) => [
      ...replayedArguments(recorded, flags, path, isResumed).filter((one) =>
        !one.startsWith("--retries=")
      ),
      "--retries=0",
    ],
    async rerun(args, signal, options) {
      const { failure } = await simulate(
        { ...options, ...limits, digests: false },
        ({ system }) => quietly(() => trainCommand(args, { begin: () => {}, signal, system })),
      );
      return failure?.message;
    },
  };
}

function readSpec(text: string): ActorSpec<unknown, Message> {
  const [file, name] = text.split("#");
  ensure(file && name, "replay", "--module must be like actors.ts#counter", text);
  return { module: new URL(file, `file://${Deno.cwd()}/`).href, export: name };
}

/** Returns the first step of an actor in a journal that keeps messages. */
function firstStep({ steps, payloads }: Journal, id: string): StepRecord {
  const first = steps.find(({ actor }) => actor === id);
  const ids = [...new Set(steps.map(({ actor }) => actor))].join(", ");
  ensure(first, "replay", `--actor must be one of ${ids}`, id, RangeError);
  const must = "the journal must keep messages, as with --journal-messages";
  ensure(payloads.size > 0, `replay ${id} alone`, must, "none", RangeError);
  return first;
}

/** A whole run to repeat. */
interface WholeRun {
  readonly journal: Journal;
  /** The path of the journal. */
  readonly path: string;
  readonly flags: ReplayFlags;
  readonly signal: AbortSignal;
}

/** Prepares the replay of a whole run. */
async function wholeRun(whole: WholeRun): Promise<Replay> {
  const { journal, path, flags } = whole, run = readRecordedRun(journal);
  const isScenario = run.kind === "scenario";
  const used = run.kind === "training" ? NAMED_FLAGS : isScenario ? { module: 0 } : {};
  for (const name of ["module", ...Object.keys(NAMED_FLAGS)] as (keyof ReplayFlags)[]) {
    const isUsed = flags[name] === undefined || name in used;
    if (!isUsed) throw unread(name, "as the recorded run used none", "one");
  }
  if (run.kind === "training") {
    const args = replayedArguments(run.args, flags, path);
    const { trace, dashboard } = rawArguments(run.args, TRAIN_FLAGS).flags;
    return (onStep) => replayTraining(whole, args, (trace ?? dashboard) !== undefined, onStep);
  }
  if (isScenario && flags.module === undefined) throw unnamed("module", run.file, path, flags);
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

/** Runs the same program with the same flags in a simulated system. */
async function replayTraining(
  { journal, flags, signal }: WholeRun,
  args: readonly string[],
  isTraced: boolean,
  onStep: OnStep,
): Promise<string> {
  const out = await Deno.makeTempDir().catch((cause: Error) => {
    throw refusal("replay", "TMPDIR must be a folder that can be written and has room", cause);
  });
  try {
    const { steps, hash, failure } = await replayJournal(
      journal,
      async ({ system }) => {
        const written = ["--out", out, ...isTraced ? ["--trace", join(out, "trace.json")] : []];
        await trainCommand([...args, ...written], { begin: () => {}, signal, system });
      },
      {
        actors: [...TRAINING_ACTORS, TRAIN_MODULE],
        mayHaveChanged: flags["code-changed"] ?? false,
        trusted: TRUSTED,
        hangMs: HANG_MS,
        onStep,
      },
    );
    if (!failure) return `${steps} steps as recorded, hash ${hash}`;
    if (failure.kind !== "deadlock") {
      throw new Error(`${steps} steps are as recorded; then the run failed: ${failure.message}`);
    }
    return `${steps} steps as recorded; there the journal ends, as its program was killed`;
  } finally {
    await Deno.remove(out, { recursive: true });
  }
}

/**
 * Returns the arguments that repeat a recorded run.
 *
 * @param recorded its arguments.
 * @param named the flags of this command line.
 * @param journal the path of the journal, for messages.
 * @param isResumed false if the recorded checkpoint is not read.
 * @throws {TypeError} if the run read a file that is not named.
 * @throws {RangeError} if a file is named that the run did not read, or a flag is invalid.
 */
export function replayedArguments(
  recorded: readonly string[],
  named: NamedFiles,
  journal: string,
  isResumed = true,
): string[] {
  const { flags: raw, takenBack, limit } = readRecorded(recorded, named["memory-limit"]);
  const args = Object.entries(raw)
    .filter(([name, value]) => INHERITED.has(name) && !isModule(name, value))
    .map(([name, value]) => value === true ? `--${name}` : `--${name}=${value}`);
  args.push(...takenBack.filter((name) => INHERITED.has(name)).map((name) => `--no-${name}`));
  // The config of a checkpoint of 0.1.0 has no clip, and its run clips nothing.
  if (raw.clip === undefined && raw.resume === undefined) args.push("--clip=0");
  for (const name of Object.keys(NAMED_FLAGS) as (keyof NamedFiles)[]) {
    if (name === "memory-limit" || name === "resume" && !isResumed) continue;
    const isInput = TRAIN_FLAGS[name].kind === "path" || isModule(name, raw[name]);
    const then = isInput ? raw[name] : undefined, now = named[name];
    if (then === undefined && now === undefined) continue;
    if (now === undefined) throw unnamed(name, String(then), journal, named);
    if (then === undefined) throw unread(name, "as in the recorded run", JSON.stringify(now));
    args.push(`--${name}=${now}`);
  }
  return [...args, `--memory-limit=${limit}`];
}

/** Reads the arguments of a recorded run, with the bytes of each worker: all are in one isolate. */
function readRecorded(recorded: readonly string[], total: unknown) {
  try {
    const { flags } = parseArguments(recorded, TRAIN_FLAGS);
    const { workers = TRAIN_FLAGS.workers.default, replicas = 1 } = flags;
    const bytes = typeof total === "number" ? total : MEMORY_BYTES;
    const each = Math.max(1, Math.floor(bytes / (workers * replicas)));
    const limit = Math.min(each, flags["memory-limit"] ?? Infinity);
    return { ...rawArguments(recorded, TRAIN_FLAGS), limit };
  } catch (error) {
    throw new TypeError(`Cannot replay with the flags of the journal: ${(error as Error).message}`);
  }
}

/** Returns whether a value names a user's module. */
function isModule(name: string, value: string | true | undefined): boolean {
  const { kind, choices = [] } = (TRAIN_FLAGS as Flags)[name]!;
  return kind === "part" && typeof value === "string" && !choices.includes(value);
}

/** Returns the error of a file that the run read and the user did not name. */
function unnamed(flag: string, file: string, journal: string, given: NamedFiles): Error {
  const named = Object.entries(given).filter(([, value]) => typeof value === "string");
  const words = [...named as [string, string][], [flag, file] as const]
    .flatMap(([name, value]) => [`--${name}`, value]);
  const must = `--${flag} must name the file that the run read, because a journal opens no file`;
  return untrusted("replay", must, "replay", [journal, ...words]);
}

/** Returns the error of a file that the user named and the run did not read. */
const unread = (flag: string, why: string, received: string) =>
  new RangeError(`Cannot replay: --${flag} must be left out, ${why}, received ${received}`);

/** Maximum number of arguments of a command, and of characters of a text. */
const ARGUMENTS_MAX = 256, TEXT_MAX = 4096;

/** Maximum of workers × micro-batches × replicas × steps of a simulated training. */
const MAX_REHEARSED = 2 ** 16;

const TEXT = shortText(TEXT_MAX), SIZE = v.exactOptional(integer(1));

const FAULT = v.objectWithRest(
  { step: integer(0), kind: TEXT, target: TEXT },
  v.union([v.string(), v.number(), v.boolean()], "a text, a number, or true or false"),
  "a fault",
);

/** The configuration of a journal, as commands write it. */
const RECORDED = objectOf({
  train: v.exactOptional(arrayOf(TEXT, 0, ARGUMENTS_MAX)),
  explore: v.exactOptional(TEXT),
  configuration: v.exactOptional(v.unknown()),
  faults: v.optional(v.array(FAULT, "a list of faults"), []),
});

const CANNOT = "Cannot replay the journal", OF_JOURNAL = { at: "configuration" };

/**
 * Reads the configuration of a journal, which may come from an untrusted source: that of
 * `troupe train`, of `troupe explore SCHEDULE`, or of `troupe explore FILE`.
 *
 * @throws {TypeError} {@linkcode RangeError} if no command could have written it.
 */
function readRecordedRun({ header: { configuration } }: Journal) {
  const recorded = isObject(configuration) ? configuration : {};
  const { train, explore, ...read } = checkData(CANNOT, RECORDED, recorded, OF_JOURNAL);
  if (train !== undefined) return { kind: "training", args: train } as const;
  const remedy = "use --actor, or replayJournal in your own program";
  const must = "the journal must be one of train or explore";
  ensure(explore !== undefined, "replay the whole run", must, `another; ${remedy}`);
  const { configuration: inner } = read, faults = read.faults as readonly Fault[];
  return scheduleNames().includes(explore)
    ? { kind: "simulated", plan: readPlan(explore, inner), faults } as const
    : { kind: "scenario", file: explore, configuration: inner, faults } as const;
}

function readPlan(schedule: string, configuration: unknown): SimulatedTrainingOptions {
  const mayLose = v.optional(v.boolean("true or false"), false);
  const sizes = { workers: SIZE, microBatches: SIZE, replicas: SIZE, steps: SIZE };
  const schema = exactObject({ schedule: v.literal(schedule, schedule), mayLose, ...sizes });
  const plan = checkData(CANNOT, schema, configuration, OF_JOURNAL);
  // The largest defaults.
  const { workers = 4, microBatches = 8, replicas = 2, steps = 1 } = plan;
  const product = workers * microBatches * replicas * steps;
  const must = `${Object.keys(sizes).join(" × ")} of the journal must be at most ${MAX_REHEARSED}`;
  ensure(product <= MAX_REHEARSED, "replay", must, product, RangeError);
  return plan;
}
