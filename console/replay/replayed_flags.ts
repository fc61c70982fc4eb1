/**
 * The flags that a recorded training run is made again with: those of its journal but for paths,
 * which only the user names.
 *
 * @module
 */

import { DASHBOARD_FLAGS } from "../dashboard/dashboard_flags.ts";
import { commandLine } from "../../actors/run/command_line.ts";
import { shellWord } from "../train/data_files.ts";
import type { Flags } from "../flags/flag.ts";
import { parseFlags, type RawArguments, rawArguments } from "../flags/parse.ts";
import { TRAIN_FLAGS } from "../train/train_flags.ts";

/** Flags of `troupe replay` that name what the run read. */
export const NAMED_FLAGS = {
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
export function wasTraced(recorded: readonly string[]): boolean {
  const { trace, dashboard } = rawArguments(recorded, TRAIN_FLAGS).flags;
  return trace !== undefined || dashboard !== undefined;
}

/** Whether a value names a module of somebody's, and nothing that comes with Troupe. */
function isModule(name: string, value: string | true | undefined): boolean {
  const { kind, choices = [] } = (TRAIN_FLAGS as Flags)[name]!;
  return kind === "part" && typeof value === "string" && !choices.includes(value);
}

/** The error of a file that a journal says was read, and nobody named. */
export function unnamed(flag: string, file: string, journal: string): TypeError {
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
