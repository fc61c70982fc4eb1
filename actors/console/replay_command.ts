/**
 * `troupe replay`: makes a recorded run again, whole or one actor of it, and compares every step.
 *
 * @module
 */

import { findExample } from "../rehearsal/examples.ts";
import { TRAINING_ACTORS, TRAINING_SPECS } from "../run_journal.ts";
import type { ActorSpec, Message } from "../runtime/mod.ts";
import {
  describeStep,
  type Fault,
  type Journal,
  readJournal,
  replayInbox,
  replayJournal,
  type StepRecord,
} from "../simulation/mod.ts";
import { type CommandContext, print } from "./command.ts";
import type { ExploredRun } from "./explore_command.ts";
import { type GivenFlags, helpLines, parseFlags } from "./flags.ts";

const REPLAY_FLAGS = {
  actor: { kind: "text", value: "ID", help: "replay this actor alone, from what it got" },
  module: { kind: "text", value: "FILE#NAME", help: "what makes that actor, if not this package" },
  "code-changed": {
    kind: "switch",
    help: "replay a whole run also where the program is not the one that wrote the journal",
  },
  until: { kind: "integer", minimum: 0, value: "STEP", help: "stop after this step, and show it" },
  help: { kind: "switch", help: "show this" },
} as const;

type ReplayFlags = GivenFlags<typeof REPLAY_FLAGS>;

/** Steps shown when a replay stops on the way. */
const STEPS_SHOWN = 20;

/** A handler that compiles a model takes its time. */
const HANG_MS = 300_000;

/** No actors: devices, which may look at the clock, and what writes checkpoints meanwhile. */
const TRUSTED = ["../../kernels/", "../checkpoint"].map((url) =>
  new URL(url, import.meta.url).href
);

function help(): string {
  return [
    "Makes a recorded run again and compares every message, state and hash with the journal.",
    "",
    "Usage: deno task troupe replay JOURNAL [flags]",
    "",
    ...helpLines(REPLAY_FLAGS),
    "",
    "Exit codes: 0 it came out as recorded; 1 it did not; 2 bad input.",
  ].join("\n");
}

/** The program that trains. */
export interface TrainProgram {
  /** URL of its module. */
  readonly module: string;
  /** Runs it by its flags. */
  readonly run: (args: string[], context: CommandContext) => Promise<number>;
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
  if (args.length === 0 || args.includes("--help")) return print(help()), 0;
  if (path!.startsWith("-")) {
    throw new TypeError(`Cannot replay: the first argument must be a JOURNAL, received ${path}`);
  }
  const flags = parseFlags(rest, REPLAY_FLAGS), journal = await readJournal(path!);
  const mayHaveChanged = flags["code-changed"] ?? false;
  const replay = flags.actor === undefined
    ? wholeRun(journal, context, { train, mayHaveChanged })
    : oneActor(journal, flags.actor, flags.module);
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

/** What a journal lacks, as the rest of a sentence. */
export function describeEnds({ isTorn, unfinished }: Journal): string {
  const ends = unfinished.length === 0 ? [] : [
    `; the end of isolate ${
      unfinished.join(", ")
    } is missing: it was killed, or the journal was cut`,
  ];
  return [...(isTorn ? ["; its last line is torn"] : []), ...ends].join("");
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

function oneActor(journal: Journal, id: string, module: string | undefined): Replay {
  const spec = module === undefined ? knownActor(journal, id) : readSpec(module);
  return async (onStep) => {
    const options = { id, trusted: TRUSTED, hangMs: HANG_MS, onStep };
    const { steps, compared, states } = await replayInbox(spec, journal, options);
    return `${id}: ${steps} messages, ${compared} doings and ${states} states as recorded.`;
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
function knownActor({ steps, payloads }: Journal, id: string): AnySpec {
  const first = steps.find(({ actor }) => actor === id);
  if (!first) {
    const ids = [...new Set(steps.map(({ actor }) => actor))].join(", ");
    throw new RangeError(`Cannot replay: --actor must be one of ${ids}, received ${id}`);
  }
  if (payloads.size === 0) {
    throw new RangeError(
      `Cannot replay ${id} alone: the journal must keep messages, as with --journal-messages`,
    );
  }
  const { made } = payloads.get(first.payload) as { made?: string };
  const spec = TRAINING_SPECS.find((one) => one.export === made);
  if (spec) return spec as AnySpec;
  throw new TypeError(`Cannot replay ${id}: --module must say what makes it, received none`);
}

/** How a whole run is made again. */
interface WholeRun {
  readonly train: TrainProgram;
  readonly mayHaveChanged: boolean;
}

/** A recorded run, made again as its configuration says. */
function wholeRun(journal: Journal, context: CommandContext, how: WholeRun): Replay {
  const configuration = journal.header.configuration as
    | Partial<ExploredRun & { train: string[] }>
    | null;
  const { explore, faults = [] } = configuration ?? {}, args = configuration?.train;
  if (args) return (onStep) => replayTraining(journal, args, context, how, onStep);
  if (explore === undefined) {
    throw new TypeError(
      "Cannot replay the whole run: the journal must be one of train or explore; use --actor, or " +
        "replayJournal in a program of your own",
    );
  }
  return async (onStep) => {
    const { scenario } = await findExample(explore, faults.length > 0);
    const run = await replayJournal(journal, scenario, {
      configuration: configuration!.configuration,
      faults: faults as readonly Fault[],
      mayHaveChanged: how.mayHaveChanged,
      onStep,
    });
    const { steps, hash, failure } = run;
    const end = failure ? `; it failed as then: ${failure.message}` : "";
    return `${steps} steps as recorded, hash ${hash}${end}`;
  };
}

/** The same program with the same flags, in a simulated system. */
async function replayTraining(
  journal: Journal,
  args: readonly string[],
  { signal }: CommandContext,
  { train, mayHaveChanged }: WholeRun,
  onStep: (step: StepRecord) => void,
): Promise<string> {
  const out = await Deno.makeTempDir();
  try {
    const run = await replayJournal(
      journal,
      async ({ system }) => {
        await train.run([...args, "--out", out], { begin: () => {}, signal, system });
      },
      {
        actors: [...TRAINING_ACTORS, train.module],
        mayHaveChanged,
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
    return `${steps} steps as recorded; there the journal ends, as its program was killed.`;
  } finally {
    await Deno.remove(out, { recursive: true });
  }
}
