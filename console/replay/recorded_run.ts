/**
 * What a journal's header says of its run. A journal may be a stranger's: what it says is data, of
 * known names and bounded sizes, and no file is opened because a journal names it.
 *
 * @module
 */

import type { RehearsalPlan } from "../../actors/rehearsal/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import type { Fault, Journal } from "../../actors/simulation/mod.ts";
import { isCount } from "../trace/traced_action.ts";

/** A run that is recorded. */
type RecordedRun =
  /** Of `troupe train`, with these arguments. */
  | { readonly kind: "training"; readonly args: readonly string[] }
  /** Of `troupe explore SCHEDULE`. */
  | { readonly kind: "rehearsal"; readonly plan: RehearsalPlan; readonly faults: readonly Fault[] }
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
export function readRecordedRun({ header: { configuration } }: Journal): RecordedRun {
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

function readPlan(schedule: string, plan: Record<string, unknown>): RehearsalPlan {
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
