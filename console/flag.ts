/**
 * What a flag is: declared once, for the parser, the help, completion and configuration files.
 *
 * @module
 */

import { THREADS_MAX } from "../actors/options/limits.ts";
import { didYouMean } from "../actors/options/option.ts";
import type { LinkOptions } from "../actors/pipeline/links.ts";
import about from "../deno.json" with { type: "json" };
import { DEVICE_NAMES } from "../kernels/mod.ts";
import { DEVICE_SPECS, type DeviceSpec, isDeviceSpec } from "../kernels/internal.ts";
import { quoted } from "./terminal.ts";

/** Where it is served. */
const PORT = {
  kind: "integer",
  value: "PORT",
  minimum: 0,
  maximum: 65_535,
  default: 0,
} as const;

/** Those of `troupe train`. */
export const DASHBOARD_FLAGS = {
  dashboard: {
    kind: "switch",
    help: "a page that shows the run as it goes, on this machine alone",
  },
  "dashboard-port": { ...PORT, help: "where that page is served; 0: any port that is free" },
  "dashboard-stay": { kind: "switch", help: "serve it after the end, too, until Ctrl-C" },
} as const;

/** Those of `troupe dashboard`. */
export const DASHBOARD_COMMAND_FLAGS = {
  port: { ...PORT, help: "where the page is served; 0: any port that is free" },
} as const;

/** One flag. */
export interface Flag {
  /**
   * What its values are. A path is taken from nobody but the user who types it, and so is a part
   * that is none of `choices`: it names a module to be run.
   */
  readonly kind: "integer" | "number" | "text" | "path" | "choice" | "part" | "switch" | "own";
  /** What stands for the value in the help: `N`, `FILE`. */
  readonly value?: string;
  /** What it does, in a few words. */
  readonly help: string;
  /** Other names: a letter (`h`), or what other programs call exactly the same thing. */
  readonly aliases?: readonly FlagAlias[];
  /** Its name in earlier versions, which is still read. */
  readonly formerly?: string;
  /** Values of a choice; with `read` the usual ones; parts that come with Troupe. */
  readonly choices?: readonly string[];
  /** Reads a value of its own kind, or of a choice that takes others too; undefined for what is none. */
  readonly read?: (text: string) => unknown;
  /** What a value of its own kind must be, in words. */
  readonly must?: string;
  /** Lowest value of a number; integers start at 1 unless said otherwise. */
  readonly minimum?: number;
  /** Highest value of a number; {@linkcode INTEGER_MAX} for integers unless said otherwise. */
  readonly maximum?: number;
  /** A number must stay below this. */
  readonly below?: number;
  /** The value where none is given. */
  readonly default?: number | string;
  /** What is done where none is given, in words, if that is no value. */
  readonly otherwise?: string;
}

/** Another name of a flag, or a switch that stands for one value of it: `fp16` for a precision. */
export type FlagAlias = string | { readonly name: string; readonly means: string };

/** No count of anything is higher: beyond it, sizes overflow before they are allocated. */
export const INTEGER_MAX = 2 ** 31 - 1;

/** Flags by name, without the dashes. */
export type Flags = Readonly<Record<string, Flag>>;

/** The name of a flag today, of a name that may be one of earlier versions. */
export const currentName = (name: string, flags: Flags): string =>
  Object.keys(flags).find((one) => flags[one]!.formerly === name) ?? name;

/** The type of a flag's values. */
export type ValueOf<F extends Flag> = F extends { kind: "integer" | "number" } ? number
  : F extends { kind: "switch" } ? boolean
  : F extends { kind: "choice"; choices: readonly (infer C)[] } ? C
  : F extends { kind: "own"; read: (text: string) => infer V } ? Exclude<V, undefined>
  : string;

/** The values of the flags that were given, by name. */
export type GivenFlags<T extends Flags> = { readonly [K in keyof T]?: ValueOf<T[K]> };

/** The values of all flags: those without a default may be absent. */
export type FlagValues<T extends Flags> =
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? K : never]: ValueOf<T[K]> }
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? never : K]?: ValueOf<T[K]> };

/**
 * Fills in what was not given: from `given`, else from the flags' defaults.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const flags = { steps: { kind: "integer", default: 300, help: "optimizer steps" } } as const;
 * assert.equal(withDefaults(flags, {}).steps, 300);
 * assert.equal(withDefaults(flags, { steps: 40 }).steps, 40);
 * ```
 */
export function withDefaults<const T extends Flags>(
  flags: T,
  given: GivenFlags<T>,
): FlagValues<T> {
  const defaults = Object.entries(flags).flatMap(([name, { default: value }]) =>
    value === undefined ? [] : [[name, value]]
  );
  return { ...Object.fromEntries(defaults), ...given } as FlagValues<T>;
}

/** The declaration of a command. */
export interface CommandSyntax {
  /** Its name, after `troupe`. */
  readonly name: string;
  /** What it does, in one line. */
  readonly summary: string;
  /** How it is called, after its name: a line for each way. */
  readonly usage: readonly string[];
  /** What it does, in more lines than one. */
  readonly about?: readonly string[];
  /** The words that it may begin with, for completion. */
  readonly words?: readonly string[];
  /** Its flags, in groups with titles. */
  readonly groups: readonly FlagGroup[];
  /** What else there is to know: exit codes and the like. */
  readonly notes?: readonly string[];
}

/** Flags that belong together. */
export interface FlagGroup {
  /** What they are, ending with a colon; none where there is but one group. */
  readonly title?: string;
  /** The flags. */
  readonly flags: Flags;
}

/** The flags of every command. */
export const COMMON_FLAGS: Readonly<Record<"help" | "version", Flag & { kind: "switch" }>> = {
  help: { kind: "switch", aliases: ["h"], help: "show this" },
  version: { kind: "switch", aliases: ["V"], help: "show the version" },
};

/** All flags of a command. */
export function flagsOf({ groups }: CommandSyntax): Flags {
  return Object.assign({}, ...groups.map(({ flags }) => flags));
}

const CHOICES: readonly DeviceSpec[] = ["auto", ...DEVICE_NAMES];

/** `--device`: a device, or one of its adapters by number. */
export const DEVICE_FLAG = {
  kind: "choice",
  choices: CHOICES,
  value: "DEVICE",
  read: (text: string): DeviceSpec | undefined => isDeviceSpec(text) ? text : undefined,
  must: `one of ${DEVICE_SPECS.join(", ")}`,
  default: "auto",
  help: "what computes",
} as const;

const UNITS: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** A number, as people and programs write it. */
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

const numberOf = (text: string): number => NUMBER.test(text) ? Number(text) : NaN;

/** A number of bytes, at least one: `512MiB`, `1.5GiB` or `1000000`. */
export function readSize(text: string): number | undefined {
  const unit = Object.keys(UNITS).find((unit) => text.endsWith(unit)) ?? "";
  const bytes = Math.floor(numberOf(text.slice(0, text.length - unit.length)) * (UNITS[unit] ?? 1));
  return Number.isSafeInteger(bytes) && bytes >= 1 ? bytes : undefined;
}

/** Numbers of bytes, from 0: `512MiB`, or one for each of any number of slices: `1MiB,0,2MiB`. */
export function readSizes(text: string): number | readonly number[] | undefined {
  const sizes = text.split(",").map((one) => one === "0" ? 0 : readSize(one));
  if (!sizes.every((size) => size !== undefined)) return undefined;
  return sizes.length === 1 ? sizes[0] : sizes;
}

/** Longer than this, a message is not late but lost: a minute. */
const LATENCY_MAX_US = 60e6;

/** The slowest link, a kilobyte a second: timers count to 2^31 ms. */
const GIGABYTES_PER_SECOND_MIN = 1e-6;

/** Latency in microseconds and bandwidth in gigabytes a second: `50,1.25`. */
export function readLink(text: string): LinkOptions | undefined {
  const [latencyUs = NaN, gigabytesPerSecond = NaN, ...more] = text.split(",").map(numberOf);
  const isLink = more.length === 0 && latencyUs >= 0 && latencyUs <= LATENCY_MAX_US &&
    gigabytesPerSecond >= GIGABYTES_PER_SECOND_MIN && Number.isFinite(gigabytesPerSecond);
  return isLink ? { latencyUs, gigabytesPerSecond } : undefined;
}

/** A finite number above 0. */
export function readPositive(text: string): number | undefined {
  const value = numberOf(text);
  return value > 0 && Number.isFinite(value) ? value : undefined;
}

/** A finite number from 0. */
export function readFromZero(text: string): number | undefined {
  return numberOf(text) === 0 ? 0 : readPositive(text);
}

/** A loss scale that stays, or one that follows the overflows. */
export function readLossScale(text: string): number | "dynamic" | undefined {
  return text === "dynamic" ? text : readPositive(text);
}

/** Micro-batches in flight, or as many as a simulation finds best. */
export function readLimit(text: string): number | "auto" | undefined {
  if (text === "auto") return text;
  const count = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  return count >= 1 && count <= INTEGER_MAX ? count : undefined;
}

/** Threads of a worker, or its share of the cores. */
export function readThreads(text: string): number | "auto" | undefined {
  if (text === "auto") return text;
  const count = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  return count >= 1 && count <= THREADS_MAX ? count : undefined;
}

/** Steps, both ends included: `10`, `100-200` or `100-`. */
export function readStepRange(text: string): { first: number; last: number } | undefined {
  const [, from, dash, to] = /^(\d{1,9})(-)?(\d{1,9})?$/.exec(text) ?? [];
  if (from === undefined || dash === undefined && to !== undefined) return undefined;
  const first = Number(from), last = to !== undefined ? Number(to) : dash ? Infinity : first;
  return first >= 1 && last >= first ? { first, last } : undefined;
}

/** Whole numbers from 0: `0,1`. */
export function readNumbers(text: string): readonly number[] | undefined {
  return /^\d{1,9}(,\d{1,9})*$/.test(text) ? text.split(",").map(Number) : undefined;
}

/** A cost for 1/P of the model, or one for each of any number of slices: `1` or `1,2,1,2`. */
export function readCost(text: string): number | readonly number[] | undefined {
  const costs = text.split(",").map(numberOf);
  if (!costs.every((cost) => Number.isFinite(cost) && cost >= 0)) return undefined;
  return costs.length === 1 ? costs[0] : costs;
}

/** A worker and how many times as long its actions take: `1,1.5`. */
export function readSlowWorker(text: string): { worker: number; factor: number } | undefined {
  const [worker = "", factor = "", ...more] = text.split(",");
  const times = readPositive(factor), index = /^\d{1,9}$/.test(worker) ? Number(worker) : undefined;
  if (more.length > 0 || index === undefined || times === undefined) return undefined;
  return { worker: index, factor: times };
}

/** What a spelling stands for: a flag, or one value of it. */
export interface Spelled {
  /** The flag's name. */
  readonly name: string;
  /** The value that the spelling stands for; absent where one follows. */
  readonly means?: string;
}

/** All spellings of flags, each with `-` for `_`. */
export function spellingsOf(flags: Flags): ReadonlyMap<string, Spelled> {
  const spellings = new Map<string, Spelled>();
  for (const [name, { aliases = [], formerly }] of Object.entries(flags)) {
    spellings.set(name, { name });
    if (formerly !== undefined) spellings.set(formerly, { name });
    for (const alias of aliases) {
      if (typeof alias === "string") spellings.set(dashed(alias), { name });
      else spellings.set(dashed(alias.name), { name, means: alias.means });
    }
  }
  return spellings;
}

/** A name with `-` in the place of `_`: Hugging Face and nanoGPT write the latter. */
export const dashed = (name: string): string => name.replaceAll("_", "-");

/**
 * Arguments with every known flag under its own name, its value joined to it: `-h` becomes `--help`,
 * `--n_layer 4` becomes `--layers=4`, and `--lr -1` becomes `--lr=-1`, as a value that starts with a
 * dash would be read as a flag; `--json=false` becomes `--no-json`. What is none of the flags stays
 * as it is.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const layers = { kind: "integer", aliases: ["n_layer"], help: "transformer blocks" } as const;
 * const precision = {
 *   kind: "choice",
 *   choices: ["fp32", "fp16"],
 *   aliases: [{ name: "fp16", means: "fp16" }],
 *   help: "how weights are stored",
 * } as const;
 * deepStrictEqual(
 *   respell(["--n_layer", "4", "--fp16", "--other", "-1"], { layers, precision }),
 *   ["--layers=4", "--precision=fp16", "--other", "-1"],
 * );
 * ```
 */
export function respell(args: readonly string[], flags: Flags): string[] {
  const spellings = spellingsOf(flags), end = args.indexOf("--");
  let respelled: string[] = [];
  const last = end < 0 ? args.length : end;
  for (let i = 0; i < last; i++) {
    const found = findFlag(args[i]!, spellings, flags);
    if (!found) {
      respelled.push(args[i]!);
      continue;
    }
    const { name, means, isTakenBack, value } = found, next = i + 1 < last ? args[i + 1]! : "--";
    if (means !== undefined) {
      const given = `--${name}=${means}`;
      if (value === "=false") respelled = respelled.filter((argument) => argument !== given);
      else respelled.push(/^(=true)?$/.test(value) ? given : `--${name}${value}`);
    } else if (flags[name]!.kind === "switch") {
      const said = value === "" && /^(true|false)$/.test(next) ? `=${args[++i]}` : value;
      if (isTakenBack || said === "=false") respelled.push(`--no-${name}`);
      else respelled.push(`--${name}${said === "=true" ? "" : said}`);
    } else if (value !== "" || next.startsWith("--")) respelled.push(`--${name}${value}`);
    else respelled.push(`--${name}=${args[++i]}`);
  }
  return [...respelled, ...args.slice(last)];
}

/** The flag that an argument names, with the value that is joined to it: `=4`, or nothing. */
function findFlag(argument: string, spellings: ReadonlyMap<string, Spelled>, flags: Flags) {
  const parts = /^(--|-(?=[^-](?:=|$)))([^=]+)(=.*)?$/s.exec(argument);
  if (!parts) return undefined;
  const name = dashed(parts[2]!), value = parts[3] ?? "";
  const found = spellings.get(name);
  if (found) return { ...found, value, isTakenBack: false };
  const back = name.startsWith("no-") && value === "" ? spellings.get(name.slice(3)) : undefined;
  if (!back || back.means !== undefined || flags[back.name]!.kind !== "switch") return undefined;
  return { ...back, value, isTakenBack: true };
}

/** What was probably meant, as the end of a sentence; empty where nothing is near. */
export function meantFlag(name: string, flags: Flags): string {
  const known = [...spellingsOf(flags).keys()]
    .filter((one) => one.length > 1 && currentName(one, flags) === one);
  return didYouMean(`--${dashed(name)}`, known.map((one) => `--${one}`));
}

/**
 * The value of a flag.
 *
 * @param name of the flag, and where it stands if not on the command line.
 * @throws {TypeError} when there is no value.
 * @throws {RangeError} when the value is not what the flag allows.
 */
export function convertValue(name: string, flag: Flag, raw: string): unknown {
  const { kind, choices = [], read, must } = flag;
  if (raw === "") throw new TypeError(`Cannot read flags: --${name} must have a value`);
  if (kind === "choice" && !read && !choices.includes(raw)) {
    throw new RangeError(
      `Cannot use --${name}: it must be one of ${choices.join(", ")}, received ${quoted(raw)}`,
    );
  }
  if (read !== undefined) {
    const value = read(raw);
    if (value !== undefined) return value;
    throw new RangeError(`Cannot use --${name}: it must be ${must}, received ${quoted(raw)}`);
  }
  return kind === "integer" || kind === "number" ? convertNumber(name, flag, raw) : raw;
}

/** Decimal, as people write it: no `0x10`, and no `1e3` where things are counted. */
const DECIMAL = { integer: /^[+-]?\d+$/, number: /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i };

/** The lowest and the highest value of a number. */
export function boundsOf({ kind, minimum, maximum }: Flag): readonly [number, number] {
  return kind === "integer"
    ? [minimum ?? 1, maximum ?? INTEGER_MAX]
    : [minimum ?? 0, maximum ?? Number.MAX_VALUE];
}

function convertNumber(name: string, flag: Flag, raw: string): number {
  const kind = flag.kind as "integer" | "number", { below = Infinity } = flag;
  const [minimum, maximum] = boundsOf(flag);
  const value = DECIMAL[kind].test(raw) ? Number(raw) : NaN;
  const received = `received ${quoted(raw)}`;
  if (value > maximum) {
    throw new RangeError(`Cannot use --${name}: it must be at most ${maximum}, ${received}`);
  }
  if (value >= minimum && value < below) return value;
  const what = kind === "integer" ? "a whole number" : "a number";
  const limit = below === Infinity ? "" : ` and below ${below}`;
  throw new RangeError(
    `Cannot use --${name}: it must be ${what} from ${minimum}${limit}, ${received}`,
  );
}

/** What `--version` prints. */
export const VERSION = `troupe ${about.version}`;
