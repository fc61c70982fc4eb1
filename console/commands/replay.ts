/**
 * `troupe replay`: makes a recorded run again, whole or one actor of it, and compares every step.
 *
 * @module
 */

import { join } from "node:path";
import { loadExample, rehearsalOf } from "../../actors/rehearsal/examples.ts";
import { TRAINING_ACTORS } from "../../actors/run/run_journal.ts";
import type { ActorSpec, Message } from "../../actors/runtime/mod.ts";
import { payloadOf } from "../../actors/simulation/journal/journal.ts";
import {
  describeStep,
  type Journal,
  readJournal,
  replayInbox,
  replayJournal,
  type ReplayOptions,
  type StepRecord,
} from "../../actors/simulation/mod.ts";
import { checkInputFile } from "../../kernels/mod.ts";
import { type CommandContext } from "../command.ts";
import { print } from "../print.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import type { GivenFlags } from "../flags/flag.ts";
import { helpOf } from "../flags/help.ts";
import { parseFlags } from "../flags/parse.ts";
import { describeEnds } from "../replay/journal_ends.ts";
import { type AnyFactory, loneFactory } from "../replay/lone_actor.ts";
import { readRecordedRun } from "../replay/recorded_run.ts";
import { NAMED_FLAGS, replayedArguments, unnamed, wasTraced } from "../replay/replayed_flags.ts";

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
    : rehearsalOf(run.plan.schedule, run.plan.mayLose!);
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
