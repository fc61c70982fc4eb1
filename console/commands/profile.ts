/**
 * `troupe profile`: what a machine costs, measured or read from a trace; and whether predictions
 * made from it hold.
 *
 * @module
 */

import { existsSync } from "node:fs";
import {
  type CheckedStep,
  checkResult,
  isNear,
} from "../../actors/foresight/check/checked_step.ts";
import { checkProfile } from "../../actors/foresight/check/check_profile.ts";
import { configurationsFor } from "../../actors/foresight/check/configurations.ts";
import { type MeterOptions, openMeter } from "../../actors/foresight/measuring/meter.ts";
import type { Profile } from "../../actors/foresight/profile/profile.ts";
import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import { isolationFor } from "../../actors/run/options/run_devices.ts";
import { gpt2, resolveDevice } from "../../kernels/mod.ts";
import type { CommandContext } from "../command.ts";
import { inOneLine } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import { type GivenFlags, withDefaults } from "../flags/flag.ts";
import { helpOf } from "../flags/help.ts";
import { parseArguments, refuseOthers } from "../flags/parse.ts";
import { describeChecked, describeProfile, describeResult } from "../foresight/describe_profile.ts";
import { PROFILE_FLAGS, PROFILE_SYNTAX, type ProfileFlags } from "../foresight/profile_flags.ts";
import { type ModelToProfile, profiledModel } from "../foresight/profiled_model.ts";
import { tracedProfile } from "../foresight/traced_profile.ts";
import { print, printError } from "../print.ts";

/** How long each model is measured under each load, in a round. */
const PROBE_MS = 500;

/** Sizes of micro-batches that are measured unless others are named. */
const MICRO_BATCHES = [1, 2, 4, 8];

/** Runs `troupe profile`; returns the exit code. */
export async function profileCommand(
  args: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(PROFILE_SYNTAX)), 0;
  if (answersItself(args, PROFILE_SYNTAX)) return 0;
  const parsed = parseArguments(args, PROFILE_FLAGS, { takesWords: true });
  const [word, ...more] = parsed.words;
  if (word === "check" && more.length === 0) {
    refuseOthers("check", ["device", "workers", "json"], parsed.flags);
    return await check(withDefaults(PROFILE_FLAGS, parsed.flags), context);
  }
  if (word !== undefined) {
    const asked = inOneLine(parsed.words.join(" "));
    throw new TypeError(
      `Cannot run "profile ${asked}": it must be check, or flags alone${
        didYouMean(word, PROFILE_SYNTAX.words!)
      }`,
    );
  }
  return await make(parsed.flags, context);
}

/** Makes a profile: of a trace, or of this machine. */
async function make(
  given: GivenFlags<typeof PROFILE_FLAGS>,
  context: CommandContext,
): Promise<number> {
  const flags = withDefaults(PROFILE_FLAGS, given);
  if (flags.out === undefined && !flags.json) {
    throw new TypeError(
      "Cannot make a profile: --out must name its file, or --json print it, received neither",
    );
  }
  if (flags["from-trace"] === undefined) return await measure(flags, given, context);
  const read = ["from-trace", "micro-batch-size", "out", "json"];
  refuseOthers("take costs from a trace", read, given);
  const profile = tracedProfile(flags["from-trace"], given["micro-batch-size"]);
  if (flags.out !== undefined) checkOut(flags.out);
  context.begin();
  keep(profile, flags);
  return 0;
}

/** Measures this machine. */
async function measure(
  flags: ProfileFlags,
  given: GivenFlags<typeof PROFILE_FLAGS>,
  { begin, signal }: CommandContext,
): Promise<number> {
  const model = await profiledModel(flags, given), options = await meterOptions(flags, model);
  if (flags.out !== undefined) checkOut(flags.out);
  begin();
  const meter = await openMeter(options);
  await meter.round(PROBE_MS);
  meter.reset();
  begin(""); // from now on a signal ends it with the rounds before
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
  let rounds = 0;
  while (!signal.aborted && rounds < flags.rounds) {
    printError(`round ${rounds + 1} of ${flags.rounds}`);
    await Promise.race([meter.round(PROBE_MS).then(() => rounds++), aborted]);
  }
  if (rounds > 0) keep({ ...meter.profile(), model: model.flags }, flags);
  if (signal.aborted) return 130; // nothing waits for the round under way
  await meter[Symbol.asyncDispose]();
  return 0;
}

/** Writes a profile down, and shows it. */
function keep(profile: Profile, { out, json }: ProfileFlags): void {
  const text = JSON.stringify(profile, undefined, 2) + "\n";
  if (out !== undefined) Deno.writeTextFileSync(out, text);
  if (json) {
    print(JSON.stringify(profile));
    profile.notes.forEach(printError);
  } else for (const line of describeProfile(profile)) print(inOneLine(line));
}

/** Refuses a file that cannot be written, before anything is measured. */
function checkOut(path: string): void {
  try {
    const isNew = !existsSync(path);
    Deno.openSync(path, { write: true, create: true }).close();
    if (isNew) Deno.removeSync(path);
  } catch (error) {
    throw new RangeError(
      `Cannot write the profile to ${inOneLine(path)}: it must be a file that can be written, ` +
        `received ${(error as Error).message}`,
    );
  }
}

async function meterOptions(
  flags: ProfileFlags,
  { of: modelOf, sizes }: ModelToProfile,
): Promise<MeterOptions> {
  const { recompute: policies = ["none"], "micro-batch-size": microBatches = MICRO_BATCHES } =
    flags;
  const device = await resolveDevice(flags.device, printError);
  const isolate = isolationFor("workers", flags.isolation, device.name);
  const models: MeterOptions["models"][number][] = [];
  for (const microBatch of new Set(microBatches)) {
    const model = await modelOf(microBatch);
    models.push(...policies.map((recompute) => ({ model, microBatch, recompute })));
  }
  return {
    device,
    models,
    sizes,
    loads: loadsUpTo(workersOf(flags)),
    isolate,
    links: ["local", "worker", "process"],
  };
}

/** 1, 2, 4 … up to the most. */
function loadsUpTo(most: number): number[] {
  const loads: number[] = [];
  for (let load = 1; load < most; load *= 2) loads.push(load);
  return [...loads, most];
}

function workersOf({ workers }: ProfileFlags): number {
  const cores = navigator.hardwareConcurrency;
  if (workers === undefined || workers <= cores) return workers ?? cores;
  throw new RangeError(
    `Cannot measure: --workers must be at most the ${cores} cores of this machine, as more of them ` +
      `would wait for each other, received ${workers}`,
  );
}

/** The model whose steps are checked, small enough that all of them take some minutes. */
const CHECKED = { layers: 4, hidden: 256, heads: 4, seq: 64, vocab: 512 };

/** The most workers that are checked. */
const CHECKED_WORKERS_MAX = 4;

/** Predicts and measures. */
async function check(flags: ProfileFlags, { begin }: CommandContext): Promise<number> {
  const workers = Math.min(workersOf(flags), CHECKED_WORKERS_MAX);
  begin();
  const steps: CheckedStep[] = [];
  const checked = checkProfile({
    configurations: configurationsFor(workers),
    modelOf: (microBatch) => gpt2(CHECKED, microBatch),
    device: (await resolveDevice(flags.device, printError)).name,
    announce: printError,
  });
  for await (const step of checked) {
    steps.push(step);
    if (flags.json) print(JSON.stringify(step));
    else for (const line of describeChecked(step, isNear(step))) print(line);
  }
  const result = checkResult(steps);
  for (const line of describeResult(result)) (flags.json ? printError : print)(line);
  return result.isPassed ? 0 : 1;
}
