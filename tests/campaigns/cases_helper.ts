/**
 * The cases of a campaign: each is drawn from the seed, runs to its end, and passes or reports why not.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { substream } from "../../kernels/random.ts";
import { print, printError } from "../../console/terminal.ts";

/** A case: its name, and the problem if it fails. A case that throws fails, too. */
export interface Case {
  readonly name: string;
  run(): Promise<string | void>;
}

/** Random numbers of a campaign: `draw(n)` is an integer below n, `draw.part()` from 0 to below 1. */
export function drawing(seed: number, name: string) {
  const generator = substream(seed, name);
  const part = () => (generator.next() >>> 0) / 2 ** 32;
  return Object.assign((below: number) => Math.floor(part() * below), { part });
}

/** What {@linkcode drawing} returns. */
export type Draw = ReturnType<typeof drawing>;

/** Makes `percent` % of `count` cases. */
export function casesOf(
  count: number,
  seed: number,
  percent: number,
  name: string,
  make: (draw: Draw, nth: number) => Case,
): Case[] {
  const draw = drawing(seed, name);
  return Array.from({ length: Math.ceil(count * percent / 100) }, (_, nth) => make(draw, nth));
}

/**
 * Runs the cases of a campaign and ends the program, with exit code 0 only if all survived.
 *
 * @param make gets the requested number of cases, and the seed.
 * @param atOnce number of cases that run at the same time.
 * @param table returns lines to print after the last case.
 */
export async function runCampaign(
  name: string,
  defaultCases: number,
  make: (count: number, seed: number) => Iterable<Case> | AsyncIterable<Case>,
  atOnce = 1,
  table: () => readonly string[] = () => [],
): Promise<never> {
  const flags = parseArgs(Deno.args, { string: ["cases", "seed"] });
  const seed = Number(flags.seed ?? 1), began = performance.now();
  print(`${name}, seed ${seed}`);
  let done = 0, survived = 0;
  const left = (async function* () {
    yield* make(Number(flags.cases ?? defaultCases), seed);
  })();
  // The iterator is shared: each runner takes the next case when it is ready.
  const work = async () => {
    for (;;) {
      const { value: one, done: isOver } = await left.next();
      if (isOver) return;
      const problem = await one.run().catch((error) => (error as Error).message);
      done++;
      if (problem === undefined) survived++;
      else printError(`case ${done} of seed ${seed}, ${one.name}: ${problem}`);
      if (done % 100 === 0) print(`${done} done, ${survived} survived`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  table().forEach((line) => print(line));
  print(`${((performance.now() - began) / 1000).toFixed(0)} s`);
  print(`${name}: ${done} cases, ${survived} survived`);
  Deno.exit(survived === done ? 0 : 1);
}
