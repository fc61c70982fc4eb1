/**
 * Parses the arguments of a command by its declaration, and formats its help.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { parse as parseJsonc } from "@std/jsonc/parse";
import { parse as parseToml } from "@std/toml/parse";
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { isObject } from "../actors/options/file_schema.ts";
import { commandLine } from "../actors/options/limits.ts";
import { decodeText, refusal } from "../kernels/internal.ts";
import { formatTable } from "../schedules/pictures/grid.ts";
import { checkFile } from "./command.ts";
import {
  boundsOf,
  type CommandSyntax,
  convertValue,
  currentName,
  dashed,
  type Flag,
  type Flags,
  flagsOf,
  type GivenFlags,
  meantFlag,
  respell,
  spellingsOf,
  VERSION,
} from "./flag.ts";
import { ensure, inOneLine, print, quoted } from "./terminal.ts";

/**
 * Formats the help of a command: its usage, summary and flags.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const steps = {
 *   kind: "integer",
 *   aliases: ["max_steps"],
 *   default: 300,
 *   maximum: 1000,
 *   help: "optimizer steps",
 * } as const;
 * const help = helpOf({
 *   name: "fit",
 *   summary: "fits a line",
 *   usage: ["[flags]"],
 *   groups: { "": { steps } },
 * });
 * assert.match(help, /^Usage: deno task troupe fit \[flags\]\n\nFits a line\.\n/);
 * assert.match(help, /--steps N {2}optimizer steps \(300; 1 to 1000; also --max_steps\)$/);
 * ```
 */
export function helpOf({ name, usage, about, summary, groups, notes = [] }: CommandSyntax): string {
  const calls = usage.map((words, i) =>
    `${i === 0 ? "Usage:" : "      "} ${commandLine()} ${name} ${words}`
  );
  const flags = Object.entries(groups).flatMap(([title, flags]) => [
    ...(title === "" ? [title] : ["", title]),
    ...helpLines(flags),
  ]);
  return [
    ...calls,
    "",
    ...(about ?? [`${summary[0]!.toUpperCase()}${summary.slice(1)}.`]),
    ...flags,
    ...(notes.length > 0 ? ["", ...notes] : []),
  ].join("\n");
}

/** Width of the left column. A longer flag gets a separate line. */
const LEFT_WIDTH = 32;

/** Placeholders of values. Default: those of numbers. */
const VALUES: Readonly<Partial<Record<Flag["kind"], string>>> = { path: "FILE", text: "NAME" };

/** Formats flags as help lines: values, description, default, bounds and aliases. */
function helpLines(flags: Flags): string[] {
  const rows = Object.entries(flags).map(([name, flag]) => {
    const { kind, choices, value = choices?.join("|") ?? VALUES[kind] ?? "N" } = flag;
    const short = flag.aliases?.find((alias) => typeof alias === "string" && alias.length === 1);
    const long = kind === "switch" ? `--${name}` : `--${name} ${value}`;
    const details = detailsOf(flag);
    const right = details.length === 0 ? flag.help : `${flag.help} (${details.join("; ")})`;
    return [`  ${long}${short === undefined ? "" : `, -${short}`}`, right];
  });
  return formatTable(rows, { left: [0, 1], firstWidthMax: LEFT_WIDTH });
}

/** Returns the details in parentheses: default, bounds, aliases. */
function detailsOf(flag: Flag): string[] {
  const long = (flag.aliases ?? []).flatMap((alias) =>
    typeof alias === "string"
      ? alias.length > 1 ? [`--${alias}`] : []
      : [`--${alias.name} for ${alias.means}`]
  );
  return [
    ...[flag.default ?? flag.otherwise ?? []].flat().map(String),
    ...boundsInWords(flag),
    ...(long.length > 0 ? [`also ${long.join(", ")}`] : []),
  ];
}

/** Describes the bounds of a value that differ from those of its kind. */
function boundsInWords(flag: Flag): string[] {
  if (flag.must !== undefined) return [flag.must];
  if (flag.kind !== "integer" && flag.kind !== "number") return [];
  const [minimum] = boundsOf(flag), { maximum, below } = flag;
  if (maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER) {
    return [`${minimum} to ${maximum}`];
  }
  return [below === undefined ? `from ${minimum}` : `from ${minimum}, below ${below}`];
}

/** Prints the help or the version if the arguments ask for it, and returns whether it did. */
export function answersItself(args: readonly string[], syntax: CommandSyntax): boolean {
  const asked = respell(args, flagsOf(syntax));
  if (asked.includes("--help")) print(helpOf(syntax));
  else if (asked.includes("--version")) print(VERSION);
  else return false;
  return true;
}

/**
 * Reads flags stored in a file. Values are converted and checked like typed values.
 *
 * @param kept values by name, without dashes; names that are not in `flags` are ignored.
 * @param where the file, for messages.
 * @param mayImport whether values may name parts that are not built in: true if the user has written
 * the file.
 * @throws {TypeError} when `kept` is not a record, or a value cannot be typed as an argument.
 * @throws {RangeError} when a flag does not allow its value.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const flags = { steps: { kind: "integer", help: "optimizer steps" } } as const;
 * assert.deepEqual(readKeptFlags({ steps: 40, out: "/" }, flags, "run.json"), { steps: 40 });
 * assert.throws(() => readKeptFlags({ steps: -5 }, flags, "run.json"), {
 *   message: 'Cannot use --steps of run.json: it must be a whole number from 1, received "-5"',
 * });
 * ```
 */
export function readKeptFlags<const T extends Flags>(
  kept: unknown,
  flags: T,
  where: string,
  mayImport = false,
): GivenFlags<T> {
  ensure(isObject(kept), `use the flags of ${where}`, "they must be a record", quoted(kept));
  const values: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(kept)) {
    const name = currentName(key, flags);
    if (!Object.hasOwn(flags, name)) continue;
    const flag = flags[name]!, isSwitch = flag.kind === "switch";
    const isTyped = (isSwitch ? ["boolean"] : ["string", "number"]).includes(typeof value);
    const must = isSwitch ? "true or false" : "text or a number";
    ensure(isTyped, `use --${name} of ${where}`, `it must be ${must}`, quoted(value));
    if (value === false) continue;
    const known = flag.kind === "part" && !mayImport ? { ...flag, kind: "choice" as const } : flag;
    values[name] = value === true
      ? true
      : convertValue(`${name} of ${where}`, known, String(value));
  }
  return values as GivenFlags<T>;
}

/** A file of flags. */
export type ConfigFile = ReturnType<typeof readConfigFile>;

/** Largest size of a file of flags, in bytes. */
const BYTES_MAX = 2 ** 20;

/** Parsers by file extension. */
const PARSERS: Readonly<Record<string, (text: string) => unknown>> = {
  ".json": parseJsonc,
  ".jsonc": parseJsonc,
  ".toml": parseToml,
};

type Values = Readonly<Record<string, unknown>>;

/**
 * Reads a file of flags: a record of values by flag name or alias.
 *
 * @throws {TypeError} when the file does not exist, or a name in it is unknown.
 * @throws {SyntaxError} when its text is not JSON, JSONC or TOML.
 * @throws {RangeError} when a flag does not allow its value.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const path = await Deno.makeTempFile({ suffix: ".toml" });
 * await Deno.writeTextFile(path, "max_steps = 40 # as Hugging Face says it");
 * const steps = { kind: "integer", aliases: ["max_steps"], help: "optimizer steps" } as const;
 * assert.deepEqual(readConfigFile(path, { steps }).args, ["--steps=40"]);
 * await Deno.remove(path);
 * ```
 */
export function readConfigFile(path: string, flags: Flags) {
  const record = parseFile(path), where = inOneLine(path);
  const hasFlags = isObject(record.flags);
  const isCheckpoint = hasFlags || existsSync(join(dirname(path), "manifest.json"));
  const said = hasFlags ? { ...recordOf(record.run), ...recordOf(record.flags) } : record;
  const named = nameFlags(said, flags, where);
  const paths = Object.keys(named).filter((name) => flags[name]!.kind === "path");
  const must = "the config of a checkpoint must name no file or folder";
  const isWhole = !isCheckpoint || paths.length === 0;
  ensure(isWhole, `use ${where}`, must, `--${paths.join(", --")}`);
  readKeptFlags(named, flags, where, !isCheckpoint);
  const args = Object.entries(named).map(([name, value]) =>
    typeof value === "boolean" ? `--${value ? "" : "no-"}${name}` : `--${name}=${value}`
  );
  /** The whole content of a checkpoint's file; undefined for any other file. */
  const checkpoint = isCheckpoint ? record : undefined;
  return { path, args, checkpoint };
}

function parseFile(path: string): Values {
  checkFile("config", path, BYTES_MAX);
  const end = extname(path).toLowerCase(), parse = PARSERS[end];
  const must = `the name of its file must end in ${Object.keys(PARSERS).join(", ")}`;
  ensure(parse, "use --config", must, quoted(basename(path)));
  const text = decodeText(readFileSync(path), inOneLine(path))
    .replace(/^\uFEFF/, ""); // as some editors begin a file
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    const { message } = cause as Error, isDeep = /call stack/.test(message);
    const must = `it must be ${end.slice(1).toUpperCase()}`;
    const received = isDeep ? "too many levels" : inOneLine(message);
    throw refusal(`read ${inOneLine(path)}`, must, received, SyntaxError);
  }
  ensure(isObject(value), `read ${inOneLine(path)}`, "it must be a record of flags", quoted(value));
  return value;
}

/** Flags that a file cannot set. For example, only a typed `--overwrite` may remove files. */
export const TYPED_ONLY: readonly string[] = ["config", "help", "version", "overwrite"];

/** Returns the values of a file by flag name, with aliases resolved. */
function nameFlags(said: Values, flags: Flags, where: string): Values {
  const spellings = spellingsOf(flags), named = new Map<string, unknown>();
  for (const [key, value] of Object.entries(said)) {
    const { name, means } = spellings.get(dashed(key)) ?? {};
    const isRead = name !== undefined && !TYPED_ONLY.includes(name);
    const why = name === undefined ? meantFlag(key, flags) : `; --${name} must be typed`;
    const must = "every name in it must be one of the flags";
    ensure(isRead, `read ${where}`, must, `${quoted(key)}${why}`);
    const mayRepeat = flags[name]!.formerly !== undefined && named.get(name) === value;
    const isOnce = !named.has(name) || mayRepeat;
    ensure(isOnce, `read ${where}`, `--${name} must be given once`, "twice");
    const isSaid = means === undefined || typeof value === "boolean";
    ensure(isSaid, `use ${key} of ${where}`, "it must be true or false", quoted(value));
    if (means === undefined) named.set(name, value);
    else if (value) named.set(name, means);
  }
  return Object.fromEntries(named);
}

const recordOf = (value: unknown): Values => isObject(value) ? value : {};

/** Options of {@linkcode rawArguments}. */
export interface ParseOptions {
  /** True if words are allowed besides flags. */
  readonly takesWords?: boolean;
  /** True if a repeated flag is an error. If false, the last value counts. */
  readonly isStrict?: boolean;
}

/**
 * Parses the arguments of a command. The last value of a repeated flag counts, and `--no-memory` turns
 * a switch off.
 *
 * @throws {TypeError} when a flag is unknown or has no value, or a word is not allowed.
 * @throws {RangeError} when a flag does not allow its value.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const flags = {
 *   steps: { kind: "integer", aliases: ["max_iters"], help: "optimizer steps" },
 *   device: { kind: "choice", choices: ["native", "wasm"], help: "the device that computes" },
 * } as const;
 * const given = parseArguments(["run", "--steps", "4"], flags, { takesWords: true });
 * assert.deepEqual(given, { flags: { steps: 4 }, words: ["run"] });
 * const twice = parseArguments(["--max_iters=40", "--steps", "4"], flags);
 * assert.deepEqual(twice.flags, { steps: 4 });
 * assert.throws(() => parseArguments(["--steps", "0"], flags), RangeError);
 * assert.throws(() => parseArguments(["--setps", "4"], flags), /did you mean --steps\?$/);
 * ```
 */
export function parseArguments<const T extends Flags>(
  args: readonly string[],
  flags: T,
  options?: ParseOptions,
) {
  const { flags: raw, words } = rawArguments(args, flags, options);
  const values = Object.entries(raw).map(([name, text]) =>
    [name, text === true ? true : convertValue(name, flags[name]!, text)] as const
  );
  return { flags: Object.fromEntries(values) as GivenFlags<T>, words };
}

/**
 * Splits the arguments of a command into flags and words, without conversion.
 *
 * @throws {TypeError} when a flag is unknown, or a word is not allowed.
 * @throws {RangeError} when a switch is neither true nor false.
 */
export function rawArguments(
  args: readonly string[],
  flags: Flags,
  { takesWords = false, isStrict = false }: ParseOptions = {},
) {
  const names = Object.keys(flags);
  const switches = names.filter((name) => flags[name]!.kind === "switch");
  const valued = names.filter((name) => !switches.includes(name));
  const respelled = respell(args, flags);
  checkSwitches(respelled, switches);
  checkFormer(args, respelled, flags);
  const parsed = parseArgs(respelled, {
    string: [...valued, "_"],
    boolean: switches,
    negatable: switches,
    collect: isStrict ? valued : [], // so that a flag given twice is seen
    unknown: (argument: string, key?: string) => {
      if (key !== undefined) refuseUnknown(argument, flags, isStrict);
      return true;
    },
  });
  const words = parsed._.map(String);
  const isRight = words.length === 0 || takesWords === true;
  ensure(isRight, "read flags", "every argument must be a flag", quoted(words[0]));
  const values: Record<string, string | true> = {};
  for (const name of names) {
    const raw: unknown = Array.isArray(parsed[name]) ? once(name, parsed[name]) : parsed[name];
    if (raw !== undefined && raw !== false) values[name] = raw === true ? true : String(raw);
  }
  const takenBack = switches.filter((name) =>
    parsed[name] === false && respelled.includes(`--no-${name}`)
  );
  return { flags: values, takenBack, words };
}

/**
 * Refuses flags that would have no effect.
 *
 * @param what the action, for the message.
 * @param read names of the flags that the action reads.
 */
export function refuseOthers(what: string, read: readonly string[], given: object): void {
  const unread = Object.keys(given).find((name) => !read.includes(name));
  const must = `flags must be among ${read.map((name) => `--${name}`).join(", ")}`;
  ensure(unread === undefined, what, must, `--${unread}`);
}

/** Refuses values such as `--tie=maybe`, which would be parsed as `--tie`. */
function checkSwitches(args: readonly string[], switches: readonly string[]): void {
  for (const argument of args) {
    if (argument === "--") return;
    const [, name = "", value = ""] = /^--([^=]+)=(.*)$/s.exec(argument) ?? [];
    const isFree = !switches.includes(name);
    ensure(isFree, `use --${name}`, "it must be true or false", quoted(value), RangeError);
  }
}

/** Refuses a flag with one value under its name and another under its former name. */
function checkFormer(args: readonly string[], respelled: readonly string[], flags: Flags): void {
  for (const [name, { formerly }] of Object.entries(flags)) {
    const given = new Set(respelled.filter((one) => one.startsWith(`--${name}=`)));
    const isFormer = args.some((one) => dashed(one).split("=")[0] === `--${formerly}`);
    const must = `--${formerly}, the former name of --${name}, must have its value`;
    ensure(given.size < 2 || !isFormer, "read the flags", must, inOneLine([...given].join(" ")));
  }
}

function refuseUnknown(argument: string, flags: Flags, isStrict: boolean): never {
  const [name = ""] = argument.replace(/^-+/, "").split("="), meant = meantFlag(name, flags);
  const must = `each must be one of ${Object.keys(flags).map((one) => `--${one}`).join(", ")}`;
  if (isStrict) throw refusal("read the flags", must, `${quoted(argument)}${meant}`, TypeError);
  const why = `${inOneLine(argument)} is not one of them; run with --help to see them all`;
  throw new TypeError(`Cannot read flags: ${why}${meant}`);
}

/** Returns the value of a flag that may be given once, if any. */
function once(name: string, values: readonly string[]): string | undefined {
  const [value] = values, isRight = values.length <= 1 && value !== "";
  const must = `--${name} must be ${values.length > 1 ? "given once" : "followed by its value"}`;
  ensure(isRight, "read the flags", must, quoted(values.join(" ")));
  return value;
}
