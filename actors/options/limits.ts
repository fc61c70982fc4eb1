/**
 * Quantities as users type them, and the largest sizes of a run. Larger values are mistakes or come
 * from an untrusted file, and are refused before anything is allocated.
 *
 * The functions that read a text return undefined if it is invalid.
 *
 * @module
 */

import { assertInput, resultOr } from "../../kernels/internal.ts";
import type { AdamWOptions } from "../../kernels/mod.ts";
import type { LoraOptions } from "../../kernels/internal.ts";
import type { LinkOptions } from "../pipeline/links.ts";

/** The repository, or the package from a registry. */
const ROOT = new URL(".", new URL("../../deno.json", import.meta.url));

/** Returns whether the working folder is in the repository; it may have been removed. */
const isInRepository = (): boolean =>
  resultOr(() => {
    const folder = Deno.cwd().replace(/^(?!\/)/, "/"); // with a drive in Windows
    return new URL(`${folder}/`, ROOT).href.startsWith(ROOT.href);
  }, false);

/** Returns the words that call the command in the working folder. */
function caller(isTask: boolean): string {
  if (ROOT.protocol !== "file:") return "deno run -A jsr:@troupe/troupe/cli";
  if (!isInRepository()) return `deno run -A ${ROOT}cli.ts`;
  return isTask ? "deno task" : "deno task troupe";
}

/**
 * The words that call the command: a task in the repository, otherwise its file or the package.
 *
 * @param words the words after `troupe`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * assert.equal(commandLine("train", "--resume runs/a"), "deno task train --resume runs/a");
 * assert.equal(commandLine("journal"), "deno task troupe journal");
 * ```
 */
export function commandLine(...words: string[]): string {
  return [caller(words[0] === "train" || words[0] === "generate"), ...words].join(" ");
}

/** Workers of a run, those of all its replicas together. */
export const WORKERS_MAX = 256;

/** Threads of a worker within an operation. */
export const THREADS_MAX = 256;

/** Bytes of an empty isolate in a thread. */
export const ISOLATE_BYTES = 2 ** 25;

/** Bytes of a Deno process with the modules of a worker or a supervisor. */
export const PROCESS_BYTES = 85 * 2 ** 20;

/** Micro-batches of a step, those of all its replicas together. */
export const MICRO_BATCHES_MAX = 65_536;

/** Micro-batches of a step times workers of a pipeline: the lists of its actions. */
const COMPUTED_MAX = 2 ** 20;

/** Steps of a run, buckets of a chunk and the like: nothing is allocated for them. */
export const COUNT_MAX = 2 ** 31 - 1;

/** Workers of a pipeline, micro-batches of a step and a replica, and data-parallel replicas. */
type RunSizes = Readonly<Record<"workers" | "microBatches" | "replicas", number>>;

/**
 * Refuses sizes that are too large, each for itself or together.
 *
 * @throws {RangeError} naming them.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * checkSizes({ workers: 8, microBatches: 64, replicas: 4 });
 * assert.throws(() => checkSizes({ workers: 64, microBatches: 64, replicas: 64 }), {
 *   message: "Cannot train: workers times replicas must be at most 256, received 64 times 64",
 * });
 * ```
 */
export function checkSizes({ workers, microBatches, replicas }: RunSizes): void {
  const products = [
    ["workers times replicas", workers, replicas, WORKERS_MAX],
    ["microBatches times replicas", microBatches, replicas, MICRO_BATCHES_MAX],
    ["workers times microBatches", workers, microBatches, COMPUTED_MAX],
  ] as const;
  for (const [what, one, other, most] of products) {
    const isFit = one * other <= most;
    assertInput(isFit, "train", `${what} must be at most ${most}`, `${one} times ${other}`);
  }
}

const UNITS: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** A decimal number. */
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

const numberOf = (text: string): number => NUMBER.test(text) ? Number(text) : NaN;

/** Reads a number of bytes, at least one: `512MiB`, `1.5GiB` or `1000000`. */
export function readSize(text: string): number | undefined {
  const unit = Object.keys(UNITS).find((unit) => text.endsWith(unit)) ?? "";
  const bytes = Math.floor(numberOf(text.slice(0, text.length - unit.length)) * (UNITS[unit] ?? 1));
  return Number.isSafeInteger(bytes) && bytes >= 1 ? bytes : undefined;
}

/** Returns a reader of values with commas between them. */
export const readListOf =
  <T>(read: (text: string) => T | undefined) => (text: string): readonly T[] | undefined => {
    const values = text.split(",").map(read);
    return values.every((value) => value !== undefined) ? values : undefined;
  };

/** Returns a reader of one number, or of several. */
function readOneOrMore(read: (text: string) => number | undefined) {
  const readAll = readListOf(read);
  return (text: string): number | readonly number[] | undefined => {
    const values = readAll(text);
    return values?.length === 1 ? values[0] : values;
  };
}

/** Reads numbers of bytes, from 0: `512MiB`, or one for each slice: `1MiB,0,2MiB`. */
export const readSizes = readOneOrMore((one) => one === "0" ? 0 : readSize(one));

/** A minute. A message that takes longer is lost. */
const LATENCY_MAX_US = 60e6;

/** The slowest link, a kilobyte a second: timers count to 2^31 ms. */
const GIGABYTES_PER_SECOND_MIN = 1e-6;

/** Reads a latency in microseconds and a bandwidth in gigabytes per second: `50,1.25`. */
export function readLink(text: string): LinkOptions | undefined {
  const [latencyUs = NaN, gigabytesPerSecond = NaN, ...more] = text.split(",").map(numberOf);
  const isLink = more.length === 0 && latencyUs >= 0 && latencyUs <= LATENCY_MAX_US &&
    gigabytesPerSecond >= GIGABYTES_PER_SECOND_MIN && Number.isFinite(gigabytesPerSecond);
  return isLink ? { latencyUs, gigabytesPerSecond } : undefined;
}

/** Reads a finite number above 0. */
export function readPositive(text: string): number | undefined {
  const value = numberOf(text);
  return value > 0 && Number.isFinite(value) ? value : undefined;
}

/** Reads a finite number from 0. */
export function readFromZero(text: string): number | undefined {
  return numberOf(text) === 0 ? 0 : readPositive(text);
}

/** Reads a constant loss scale, or `dynamic`. */
export function readLossScale(text: string): number | "dynamic" | undefined {
  return text === "dynamic" ? text : readPositive(text);
}

/** Reads a whole number from 1 to `maximum`, or `auto`. */
const readCountOrAuto = (maximum: number) => (text: string): number | "auto" | undefined => {
  if (text === "auto") return text;
  const count = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  return count >= 1 && count <= maximum ? count : undefined;
};

/** Reads the most micro-batches in flight; `auto` is the best of a simulation. */
export const readLimit = readCountOrAuto(COUNT_MAX);

/** Reads the most micro-batches between I and W: a number from 0, or all of them. */
export const readBacklog = (text: string): number | "all" | undefined =>
  text === "all" ? text : /^\d{1,9}$/.test(text) ? Number(text) : undefined;

/** Reads the threads of a worker; `auto` is its share of the cores. */
export const readThreads = readCountOrAuto(THREADS_MAX);

/** Reads the settings of an adapter: `rank=8,alpha=16,target=c_attn,c_proj`. */
export function readLora(text: string): LoraOptions | undefined {
  const values: Record<string, string[]> = {};
  let last: string[] = [];
  for (const one of text.split(",")) {
    const [key = "", value] = one.split("=", 2);
    if (value === undefined) last.push(one);
    else if (Object.hasOwn(values, key)) return undefined;
    else values[key] = last = [value];
  }
  const { rank = [], alpha, target = [], ...more } = values;
  const isRight = [rank, alpha ?? rank].every(({ length }) => length === 1) &&
    /^[1-9]\d{0,4}$/.test(rank[0]!) && target.length > 0 && target.every((name) => name !== "") &&
    Object.keys(more).length === 0;
  const scaled = alpha && readPositive(alpha[0]!);
  if (!isRight || (alpha && scaled === undefined)) return undefined;
  return { rank: Number(rank[0]), ...scaled && { alpha: scaled }, target };
}

/** Writes the settings of an adapter as {@linkcode readLora} reads them. */
export const formatLora = ({ rank, alpha = rank, target }: LoraOptions): string =>
  `rank=${rank},alpha=${alpha},target=${target.join(",")}`;

/** Reads settings of parameters by name: `*.bias:rate=2,decay=0;*.wte.*:frozen`. */
export function readGroups(text: string): NonNullable<AdamWOptions["groups"]> | undefined {
  const groups = text.split(";").map((one) => {
    const [match = "", settings = "", ...more] = one.split(":");
    const entries = settings.split(",").map(readSetting);
    const isRight = match !== "" && more.length === 0 && entries.every((entry) => entry);
    return isRight ? { match, ...Object.fromEntries(entries as [string, unknown][]) } : undefined;
  });
  return groups.every((group) => group !== undefined) ? groups : undefined;
}

function readSetting(text: string): readonly [name: string, value: number | true] | undefined {
  if (text === "frozen") return ["frozen", true];
  const [, name, digits = ""] = /^(rate|decay)=([^=]+)$/.exec(text) ?? [];
  const number = readFromZero(digits);
  return number === undefined ? undefined : [name === "decay" ? "weightDecay" : "rate", number];
}

/** Reads a range of steps, both ends included: `10`, `100-200` or `100-`. */
export function readStepRange(text: string): { first: number; last: number } | undefined {
  const [, from, dash, to] = /^(\d{1,9})(-)?(\d{1,9})?$/.exec(text) ?? [];
  if (from === undefined || dash === undefined && to !== undefined) return undefined;
  const first = Number(from), last = to !== undefined ? Number(to) : dash ? Infinity : first;
  return first >= 1 && last >= first ? { first, last } : undefined;
}

/** Reads whole numbers from 0: `0,1`. */
export function readNumbers(text: string): readonly number[] | undefined {
  return /^\d{1,9}(,\d{1,9})*$/.test(text) ? text.split(",").map(Number) : undefined;
}

/** Reads the cost of 1/P of the model, or one for each slice: `1` or `1,2,1,2`. */
export const readCost = readOneOrMore(readFromZero);

/** Reads a worker and the factor by which its actions take longer: `1,1.5`. */
export function readSlowWorker(text: string): { worker: number; factor: number } | undefined {
  const [worker = "", factor = "", ...more] = text.split(",");
  const times = readPositive(factor), index = /^\d{1,9}$/.test(worker) ? Number(worker) : undefined;
  if (more.length > 0 || index === undefined || times === undefined) return undefined;
  return { worker: index, factor: times };
}
