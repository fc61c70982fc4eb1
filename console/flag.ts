/**
 * Flags: each is declared once, for the parser, the help, completion and configuration files.
 *
 * @module
 */

import { COUNT_MAX } from "../actors/options/limits.ts";
import {
  factsOf,
  flagName,
  type FlagText,
  type Option,
  type OptionFlag,
  type Options,
  suggest,
} from "../actors/options/option.ts";
import { TRAIN } from "../actors/options/train_table.ts";
import about from "../deno.json" with { type: "json" };
import { assertInput } from "../kernels/internal.ts";
import { ensure, quoted } from "./terminal.ts";

/** Port of the page. */
const PORT = {
  kind: "integer",
  value: "PORT",
  minimum: 0,
  maximum: 65_535,
  default: 0,
} as const;

/** Flags of `troupe train` that serve its page. */
export const DASHBOARD_FLAGS = {
  dashboard: {
    kind: "switch",
    help: "a page that shows the run as it goes, on this machine only",
  },
  "dashboard-port": { ...PORT, help: "where that page is served; 0: any port that is free" },
  "dashboard-stay": { kind: "switch", help: "keep serving it after the end, until Ctrl-C" },
} as const;

/** Flags of `troupe dashboard`. */
export const DASHBOARD_COMMAND_FLAGS = {
  port: { ...PORT, help: "where the page is served; 0: any port that is free" },
} as const;

/** A flag. */
export interface Flag extends FlagText {
  /**
   * Kind of the values. Only the command line gives a path, or a component that is not one of
   * `choices`, as it names a module that runs.
   */
  readonly kind: "integer" | "number" | "text" | "path" | "choice" | "part" | "switch" | "own";
}

/** Flags by name, without the dashes. */
export type Flags = Readonly<Record<string, Flag>>;

/** Returns the current name of a flag, whose given name may be that of an earlier version. */
export const currentName = (name: string, flags: Flags): string =>
  Object.keys(flags).find((one) => flags[one]!.formerly === name) ?? name;

/** The type of a flag's values. */
type ValueOf<F extends Flag> = F extends { kind: "integer" | "number" } ? number
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
 * Fills in missing flags from `given`, then from the flags' defaults.
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
export function withDefaults<const T extends Flags>(flags: T, given: GivenFlags<T>): FlagValues<T> {
  const defaults = Object.entries(flags).flatMap(([name, { default: value }]) =>
    value === undefined ? [] : [[name, value]]
  );
  return { ...Object.fromEntries(defaults), ...given } as FlagValues<T>;
}

/** The declaration of a command. */
export interface CommandSyntax {
  /** Its name, after `troupe`. */
  readonly name: string;
  /** Description in one line. */
  readonly summary: string;
  /** Arguments after the name: a line for each form. */
  readonly usage: readonly string[];
  /** Description in several lines. */
  readonly about?: readonly string[];
  /** The words that it may begin with, for completion. */
  readonly words?: readonly string[];
  /** Its flags, in groups by their titles, which end with a colon; that of a single group is empty. */
  readonly groups: Readonly<Record<string, Flags>>;
  /** Notes such as exit codes. */
  readonly notes?: readonly string[];
}

/** The flags of every command. */
export const COMMON_FLAGS: Readonly<Record<"help" | "version", Flag & { kind: "switch" }>> = {
  help: { kind: "switch", aliases: ["h"], help: "show this" },
  version: { kind: "switch", aliases: ["V"], help: "show the version" },
};

/** Returns all flags of a command. */
export const flagsOf = <const G extends CommandSyntax["groups"]>(
  { groups }: { readonly groups: G },
): AllOf<G[keyof G]> => Object.assign({}, ...Object.values(groups));

/** The type with the flags of each of some types. */
export type AllOf<F> = (F extends unknown ? (flags: F) => void : never) extends
  (flags: infer All) => void ? All : never;

/** The type of the values of an option's flag. */
type FlagValueOf<O> = O extends { flag: { read: (text: string) => infer V } }
  ? Exclude<V, undefined>
  : O extends { flag: { choices: readonly (infer C)[] } } ? C
  : O extends { flag: { isPath: true } } ? string
  : O extends Option<infer V> ? Extract<V, string | number | boolean>
  : never;

/** The flag of an option, with the type of its values. */
type FlagOf<O> =
  & {
    readonly kind: "own";
    readonly help: string;
    readonly read: (text: string) => FlagValueOf<O> | undefined;
  }
  & (O extends { flag: { default: infer D } } ? { readonly default: D }
    : O extends { flag: { otherwise: string } } ? unknown
    : O extends { default: infer D } ? { readonly default: D }
    : unknown);

/** The type of {@linkcode flagName}. */
type Dashed<Name> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `-${Lowercase<First>}`}${Dashed<Rest>}`
  : "";

/** The options of a table that have flags, those in its records included, with the flags' names. */
type Flagged<T> = {
  [K in keyof T]:
    | (T[K] extends { flag: { name: infer N extends string } } ? [N, T[K]]
      : T[K] extends { flag: object } ? [Dashed<K>, T[K]]
      : never)
    | (T[K] extends { fields: infer F } ? Flagged<F> : never);
}[keyof T];

/** The flags of a table of options, by name. */
type FlagsOf<T> = { readonly [O in Flagged<T> as O[0]]: FlagOf<O[1]> };

/** Returns the flag of an option; missing properties follow from its schema. */
export function flagOf<const O extends Option<unknown>>(option: O): FlagOf<O> {
  const { schema, default: value, flag } = option as Option<unknown>;
  const { name: _name, isPath, factor: _factor, ...own } = flag as OptionFlag;
  const facts = factsOf(schema), all = { ...facts, ...own }, { maximum, otherwise } = all;
  const reads = own.read && !own.choices, usual = own.default ?? (otherwise ? undefined : value);
  return {
    ...all,
    kind: isPath ? "path" : reads ? "own" : all.choices ? "choice" : all.kind,
    ...maximum === COUNT_MAX && { maximum: undefined },
    ...usual !== undefined && { default: usual },
  } as unknown as FlagOf<O>;
}

/** Returns the flags of a table of options, in its order. */
export function flagsOfOptions<const T extends Options>(options: T): FlagsOf<T> {
  const flags = Object.entries<Option<unknown>>(options).map(([name, option]) => ({
    ...option.flag && { [flagName(name, option.flag)]: flagOf(option) },
    ...option.fields && flagsOfOptions(option.fields),
  }));
  return Object.assign({}, ...flags);
}

/** Returns the options that flags give, by the names of the options. */
export function optionsOfFlags(
  options: Options,
  flags: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(options).flatMap(([name, { flag, fields }]) => {
      if (fields) return [[name, optionsOfFlags(fields, flags)]];
      if (!flag) return [];
      const value = flags[flagName(name, flag)];
      return [[name, flag.factor && value !== undefined ? flag.factor * Number(value) : value]];
    }),
  );
}

/** `--device`: a device, or one of its adapters by number. */
export const DEVICE_FLAG = flagOf(TRAIN.device);

/** The library of products in BF16. */
export const ONEDNN_FLAG = flagOf(TRAIN.onednn);

/** All spellings of flags, each with `-` for `_`: a flag's name, and the value that is implied. */
export function spellingsOf(flags: Flags) {
  const spellings = new Map<string, { readonly name: string; readonly means?: string }>();
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

/** Returns a name with `-` instead of `_`, which Hugging Face and nanoGPT use. */
export const dashed = (name: string): string => name.replaceAll("_", "-");

/**
 * Arguments with every known flag under its own name, its value joined to it: `-h` becomes `--help`,
 * `--n_layer 4` becomes `--layers=4`, and `--lr -1` becomes `--lr=-1`, as a value that starts with a
 * dash would be read as a flag; `--json=false` becomes `--no-json`. Other arguments are unchanged.
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
function findFlag(argument: string, spellings: ReturnType<typeof spellingsOf>, flags: Flags) {
  const parts = /^(--|-(?=[^-](?:=|$)))([^=]+)(=.*)?$/s.exec(argument);
  if (!parts) return undefined;
  const name = dashed(parts[2]!), value = parts[3] ?? "";
  const found = spellings.get(name);
  if (found) return { ...found, value, isTakenBack: false };
  const back = name.startsWith("no-") && value === "" ? spellings.get(name.slice(3)) : undefined;
  if (!back || back.means !== undefined || flags[back.name]!.kind !== "switch") return undefined;
  return { ...back, value, isTakenBack: true };
}

/** Returns the nearest flag as the end of a sentence, or an empty string. */
export function meantFlag(name: string, flags: Flags): string {
  const known = [...spellingsOf(flags).keys()]
    .filter((one) => one.length > 1 && currentName(one, flags) === one);
  return suggest(`--${dashed(name)}`, known.map((one) => `--${one}`));
}

/**
 * The value of a flag.
 *
 * @param name The flag, with its file if it is not from the command line.
 * @throws {TypeError} when there is no value.
 * @throws {RangeError} when the value is not what the flag allows.
 */
export function convertValue(name: string, flag: Flag, raw: string): unknown {
  const { kind, choices = [], read, must } = flag;
  ensure(raw !== "", "read flags", `--${name} must have a value`);
  if (kind === "integer" || kind === "number") return convertNumber(name, flag, raw);
  const isKnown = read !== undefined || kind !== "choice" || choices.includes(raw);
  const known = `it must be one of ${choices.join(", ")}`;
  assertInput(isKnown, `use --${name}`, known, quoted(raw));
  const value = read ? read(raw) : raw;
  assertInput(value !== undefined, `use --${name}`, `it must be ${must}`, quoted(raw));
  return value;
}

/** Decimal notation: no `0x10`, and no `1e3` for integers. */
const DECIMAL = { integer: /^[+-]?\d+$/, number: /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i };

/** The lowest and the highest value of a number. */
export function boundsOf({ kind, minimum, maximum }: Flag): readonly [number, number] {
  return kind === "integer"
    ? [minimum ?? 1, maximum ?? COUNT_MAX]
    : [minimum ?? 0, maximum ?? Number.MAX_VALUE];
}

function convertNumber(name: string, flag: Flag, raw: string): number {
  const kind = flag.kind as "integer" | "number", { below = Infinity } = flag;
  const [minimum, maximum] = boundsOf(flag);
  const value = DECIMAL[kind].test(raw) ? Number(raw) : NaN;
  const cannot = `use --${name}`, isAbove = value > maximum;
  assertInput(!isAbove, cannot, `it must be at most ${maximum}`, quoted(raw));
  const what = kind === "integer" ? "a whole number" : "a number";
  const must = `it must be ${what} from ${minimum}${below < Infinity ? ` and below ${below}` : ""}`;
  assertInput(value >= minimum && value < below, cannot, must, quoted(raw));
  return value;
}

/** Output of `--version`. */
export const VERSION = `troupe ${about.version}`;
