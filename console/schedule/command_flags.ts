/** The flags of `troupe schedule`. */

import { parseArgs } from "@std/cli/parse-args";
import { quoted } from "../../schedules/actions/quoted.ts";
import type { ChimeraScale, ScheduleOptions } from "../../schedules/definition/options.ts";
import type { Cost, Costs } from "../../schedules/execution/costs.ts";
import type { MailboxOrder } from "../../schedules/policies/message_driven_policy.ts";

/** How a schedule can be shown. */
export const FORMATS = ["grid", "csv", "pytorch", "json", "svg"] as const;

/** A way to show a schedule. */
export type Format = typeof FORMATS[number];

/** What was asked for. */
export interface ScheduleFlags {
  /** The words that are no flags. */
  readonly words: readonly string[];
  /** What the schedule is made from; its numbers are absent where they were not given. */
  readonly options: Partial<ScheduleOptions>;
  /** What its actions cost. */
  readonly costs: Costs;
  /** How it is shown. */
  readonly format: Format;
  /** The file that it is written to. */
  readonly out: string | undefined;
}

/** The flags and their help, in the order in which they are listed. */
export const FLAG_HELP: readonly (readonly [flag: string, help: string])[] = [
  ["--workers P", "workers of a pipeline"],
  ["--micro-batches N", "micro-batches of a step"],
  ["--chunks V", "interleaved, looped-bfs: stages on each worker (2)"],
  ["--waves W", "hanayo: waves (1)"],
  ["--pipelines f", "chimera: f pipes down and f up (1)"],
  ["--scale direct|doubling|halving", "chimera: how to serve more than P micro-batches (direct)"],
  ["--pipeline-limit L", "message-driven, chimera-greedy: micro-batches in flight (P)"],
  ["--order fifo|backward-first", "message-driven: which message goes first (fifo)"],
  ["--forward T", "time of a forward of 1/P of the model (1); T,T,... for slices of it"],
  ["--backward T", "time of a full backward (2)"],
  ["--input T, --weight T", "time of the parts of a split backward (half of the backward each)"],
  ["--overlap T", "time of a forward and a backward that overlap (the sum of both)"],
  ["--send T", "time of a message (0)"],
  ["--activation-limit M", "search: most activations of a worker, in 1/P of the model (P)"],
  ["--weight-limit M", "search: most weights of a worker, in 1/P of the model (1)"],
  [
    "--format grid|csv|pytorch|json|svg",
    "how to show it (grid); pytorch is CSV that PyTorch reads",
  ],
  ["--out FILE", "where to write it"],
];

const WHOLE = { workers: "workers", "micro-batches": "microBatches", chunks: "chunks" } as const;
const WHOLE_TOO = {
  waves: "waves",
  pipelines: "pipelines",
  "pipeline-limit": "pipelineLimit",
} as const;
const LIMITS = { "activation-limit": "activationLimit", "weight-limit": "weightLimit" } as const;
const COSTS = ["forward", "backward", "input", "weight", "send"] as const;
const CHOICES = {
  scale: ["direct", "doubling", "halving"],
  order: ["fifo", "backward-first"],
  format: FORMATS,
} as const;
const WORDS = ["overlap", "out"] as const;

const NAMES = [
  ...[WHOLE, WHOLE_TOO, LIMITS, CHOICES].flatMap((group) => Object.keys(group)),
  ...COSTS,
  ...WORDS,
];

/**
 * Reads the flags of `troupe schedule`.
 *
 * @throws {TypeError} if a flag is unknown, has no value, or is given twice.
 * @throws {RangeError} if a value is not what the flag allows.
 */
export function parseScheduleFlags(args: readonly string[]): ScheduleFlags {
  const parsed = parseArgs([...args], {
    string: [...NAMES, "_"],
    collect: NAMES, // so that a flag given twice is seen, and not the last one taken
    unknown(argument, key) {
      if (key === undefined) return true;
      throw new TypeError(
        `Cannot read the flags: each must be one of ${
          NAMES.map((name) => `--${name}`).join(", ")
        }, ` +
          `received ${quoted(argument)}`,
      );
    },
  });
  const given = (name: string): string | undefined => {
    const values = parsed[name] as readonly string[];
    const [value] = values;
    if (values.length <= 1 && value !== "") return value;
    const must = values.length > 1 ? "given once" : "followed by its value";
    throw new TypeError(
      `Cannot read the flags: --${name} must be ${must}, received ${quoted(values.join(" "))}`,
    );
  };
  const options: Record<string, number | string> = {};
  for (const [flag, option] of Object.entries({ ...WHOLE, ...WHOLE_TOO, ...LIMITS })) {
    const text = given(flag);
    if (text === undefined) continue;
    options[option] = flag in LIMITS ? readNumber(flag, text) : readWhole(flag, text);
  }
  const costs: Record<string, Cost> = {};
  for (const name of COSTS) {
    const text = given(name);
    if (text !== undefined) costs[name] = readCost(name, text);
  }
  const overlap = given("overlap");
  if (overlap !== undefined) costs["overlap"] = readNumber("overlap", overlap);
  const scale = readChoice("scale", given("scale")) as ChimeraScale | undefined;
  const order = readChoice("order", given("order")) as MailboxOrder | undefined;
  if (scale !== undefined) options["scale"] = scale;
  if (order !== undefined) options["order"] = order;
  return {
    words: parsed._.map(String),
    options: options as Partial<ScheduleOptions>,
    costs,
    format: readChoice("format", given("format")) as Format | undefined ?? "grid",
    out: given("out"),
  };
}

/** Decimal, as people write it: no `0x10`, and no `1e3` where things are counted. */
const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i, WHOLE_DECIMAL = /^[+-]?\d+$/;

/** The largest count of anything. */
const WHOLE_MAX = 2 ** 31 - 1;

function readNumber(flag: string, text: string): number {
  const value = DECIMAL.test(text) ? Number(text) : NaN;
  if (Number.isFinite(value) && value >= 0) return value;
  throw new RangeError(
    `Cannot use --${flag}: it must be a number from 0, received ${quoted(text)}`,
  );
}

function readWhole(flag: string, text: string): number {
  const value = WHOLE_DECIMAL.test(text) ? Number(text) : NaN;
  if (value >= 1 && value <= WHOLE_MAX) return value;
  const must = value > WHOLE_MAX ? `at most ${WHOLE_MAX}` : "a whole number from 1";
  throw new RangeError(`Cannot use --${flag}: it must be ${must}, received ${quoted(text)}`);
}

function readCost(flag: string, text: string): Cost {
  return text.includes(",")
    ? text.split(",").map((part) => readNumber(flag, part))
    : readNumber(flag, text);
}

function readChoice(flag: keyof typeof CHOICES, text: string | undefined): string | undefined {
  const choices: readonly string[] = CHOICES[flag];
  if (text === undefined || choices.includes(text)) return text;
  throw new RangeError(
    `Cannot use --${flag}: it must be one of ${choices.join(", ")}, received ${quoted(text)}`,
  );
}
