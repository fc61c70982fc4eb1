/**
 * Measures programs in interleaved rounds.
 *
 * [Note: ratios on a busy machine] Clock rates and other programs change from second to second, so two
 * figures measured one after another differ. Compared cases run in the same rounds, in reverse order
 * in every other round, and a ratio is computed within each round. A round that other programs
 * disturb is repeated, within a bound; the least disturbed rounds count. The figure is their median;
 * the lowest and the highest show its spread.
 *
 * @module
 */

import { readFileSync } from "node:fs";
import process from "node:process";
import { type Device, Graph } from "../kernels/mod.ts";
import { encodeGraph } from "../kernels/onnx/encode.ts";
import { substream } from "../kernels/random.ts";

/** Returns the slope of log value over log size, by least squares. */
export function exponentOf(points: readonly (readonly [size: number, value: number])[]): number {
  const logs = points.map(([size, value]) => [Math.log(size), Math.log(value)] as const);
  const mean = (axis: 0 | 1) => logs.reduce((sum, point) => sum + point[axis], 0) / logs.length;
  const [meanX, meanY] = [mean(0), mean(1)];
  let [covariance, variance] = [0, 0];
  for (const [x, y] of logs) {
    covariance += (x - meanX) * (y - meanY);
    variance += (x - meanX) ** 2;
  }
  return covariance / variance;
}

/** Clock ticks per second in the interface of the Linux kernel. */
const TICKS_PER_SECOND = 100;

/** Returns the busy seconds of all cores; undefined on systems other than Linux. */
function busySeconds(): number | undefined {
  if (Deno.build.os !== "linux") return undefined;
  const [, ...ticks] = readFileSync("/proc/stat", "utf8").split("\n", 1)[0]!.split(/\s+/);
  // user, nice, system, irq, softirq and steal; guests are already counted as users.
  return [0, 1, 2, 5, 6, 7].reduce((sum, i) => sum + Number(ticks[i]), 0) / TICKS_PER_SECOND;
}

/**
 * Starts to observe other programs.
 *
 * @returns the mean number of cores that they have kept busy since then; undefined if unknown.
 */
function watchOthers(): () => number | undefined {
  const read = () => {
    const { user, system } = process.cpuUsage();
    return { busy: busySeconds(), own: (user + system) / 1e6, at: performance.now() / 1000 };
  };
  const before = read();
  return () => {
    const after = read();
    if (before.busy === undefined || after.busy === undefined) return undefined;
    const others = after.busy - before.busy - (after.own - before.own);
    return Math.max(0, others / (after.at - before.at));
  };
}

/**
 * Rows, columns and depth of the product that measures the speed of a device. Rows of 1024 are 4 KiB
 * apart, so that they share few lines of a cache: a product of them is a tenth slower.
 */
export const PRODUCT_SIZE = 1008;

/** Returns the GFLOP of the product of two matrices with `size` rows. */
export const productGflop = (size: number): number => 2 * size ** 3 / 1e9;

/** Opens a MatMul of two square matrices; `close` frees them and the kernel. */
export async function openProduct(device: Device, size: number, dtype: "f32" | "f16" = "f32") {
  const g = new Graph(), shape = [size, size];
  const a = g.input("a", shape, dtype), b = g.input("b", shape, dtype);
  const kernel = await device.compile(encodeGraph(g, { c: g.matmul(a, b) }));
  const generator = substream(1, "bench matrices");
  const alloc = () => device.alloc(dtype, shape), left = alloc(), right = alloc();
  const product = alloc();
  const values = dtype === "f32" ? new Float32Array(size ** 2) : new Float16Array(size ** 2);
  for (const tensor of [left, right]) {
    device.write(tensor, values.map(() => generator.next() / 2 ** 31));
  }
  return {
    run: kernel.bind({ a: left, b: right }, { c: product }),
    close() {
      kernel.close();
      for (const tensor of [left, right, product]) device.free(tensor);
    },
  };
}

/** The median of some rounds, with the lowest and the highest. */
export type Spread = ReturnType<typeof spread>;

/** One run of every case. */
export interface Round<Name extends string> {
  /** Milliseconds of each case. */
  readonly ms: Readonly<Record<Name, number>>;
  /** Cores that other programs kept busy, if known. */
  readonly otherCores: number | undefined;
}

/** The number of rounds. */
export interface RoundOptions {
  /** Rounds that count, or the time for them; repeated rounds may double it. */
  readonly rounds: number | { readonly withinMs: number };
  /** Warm-up rounds. Default 2, or 0 if the time is short. */
  readonly warmup?: number;
  /** False if other programs are part of the measurement. Default true, unless the time is short. */
  readonly isAlone?: boolean;
}

/** Other programs may keep this much of a core busy in a quiet round. */
const QUIET_CORES = 0.1;

/** Most rounds of a measurement. */
let roundsMax = Infinity;

/** Limits the rounds of all measurements. */
export function limitRounds(most: number): void {
  roundsMax = most;
}

/** Returns the rounds of a measurement within the limit. */
export const roundsWithin = (rounds: number): number => Math.min(rounds, roundsMax);

/** Most runs for each counted round. */
const TRIES = 2;

/** Fewest and most rounds in a given time. */
const FEWEST = 3, MOST = 25;

/** Returns the number of rounds that fit into a time. */
function fitting(withinMs: number, { ms }: Round<string>): number {
  const round = Object.values(ms).reduce((sum, one) => sum + one, 0);
  return Math.min(Math.max(Math.floor(withinMs / round), FEWEST), MOST);
}

/**
 * Runs every case once per round.
 *
 * @param cases by name; a case may return its milliseconds.
 */
export async function interleave<Name extends string>(
  cases: Readonly<Record<Name, () => Promise<number | void>>>,
  options: RoundOptions,
): Promise<Round<Name>[]> {
  const names = Object.keys(cases) as Name[];
  const run = async (order: readonly Name[]): Promise<Round<Name>> => {
    const ms: Partial<Record<Name, number>> = {}, others = watchOthers();
    for (const name of order) {
      const start = performance.now();
      const own = await cases[name]();
      ms[name] = own ?? performance.now() - start;
    }
    return { ms: ms as Record<Name, number>, otherCores: others() };
  };
  const asked = typeof options.rounds === "number"
    ? options.rounds
    : fitting(options.rounds.withinMs, await run(names));
  const isLong = typeof options.rounds === "number" || asked > FEWEST;
  const { warmup = isLong ? 2 : 0, isAlone = isLong } = options, rounds = roundsWithin(asked);
  for (let i = 0; i < roundsWithin(warmup); i++) await run(names);
  const disturbance = ({ otherCores = 0 }: Round<Name>) => isAlone ? otherCores : 0;
  const all: Round<Name>[] = [];
  let quiet = 0;
  while (quiet < rounds && all.length < rounds * TRIES) {
    const round = await run(all.length % 2 === 0 ? names : names.toReversed());
    if (disturbance(round) <= QUIET_CORES) quiet++;
    all.push(round);
  }
  return all.toSorted((a, b) => disturbance(a) - disturbance(b)).slice(0, rounds);
}

/** Returns the spread of some figures. */
export function spread(values: readonly number[]) {
  if (values.length === 0) throw new RangeError("Cannot take a median: there must be a round");
  const sorted = values.toSorted((a, b) => a - b), middle = (sorted.length - 1) / 2;
  const median = (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
  return { median, low: sorted[0]!, high: sorted.at(-1)! };
}

/** Returns the spread of a figure that is computed within each round. */
export function spreadOf<Name extends string>(
  rounds: readonly Round<Name>[],
  figure: (ms: Round<Name>["ms"]) => number,
): Spread {
  return spread(rounds.map(({ ms }) => figure(ms)));
}
