/**
 * `troupe profile`: what a machine costs, measured or read from a trace; and whether predictions
 * made from it hold.
 *
 * @module
 */

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
import { parseArguments } from "../flags/parse.ts";
import { describeChecked, describeProfile, describeResult } from "../foresight/describe_profile.ts";
import { papersCommand } from "../foresight/papers_command.ts";
import { PROFILE_FLAGS, PROFILE_SYNTAX, type ProfileFlags } from "../foresight/profile_flags.ts";
import { profiledModel, sizesOf } from "../foresight/profiled_model.ts";
import { tracedProfile } from "../foresight/traced_profile.ts";
import { print, printError } from "../print.ts";

/** How long each model is measured under each load, in a round. */
const PROBE_MS = 500;

/** Sizes of micro-batches that are measured unless others are named. */
const MICRO_BATCHES = [1, 2, 4, 8];

/** That of a traced run, unless it is named: the default of train. */
const TRACED_MICRO_BATCH = 8;

/** Runs `troupe profile`; returns the exit code. */
export async function profileCommand(
  args: readonly string[],
  context: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(PROFILE_SYNTAX)), 0;
  if (args[0] === "papers") return papersCommand(args.slice(1), context);
  if (answersItself(args, PROFILE_SYNTAX)) return 0;
  const parsed = parseArguments(args, PROFILE_FLAGS, { takesWords: true });
  const [word, ...more] = parsed.words;
  if (word === "check" && more.length === 0) {
    refuseUnread("check", ["device", "workers", "json"], Object.keys(parsed.flags));
    return await check(withDefaults(PROFILE_FLAGS, parsed.flags), context);
  }
  if (word !== undefined) {
    const asked = inOneLine(parsed.words.join(" "));
    throw new TypeError(
      `Cannot run "profile ${asked}": it must be check, papers, or flags alone${
        didYouMean(word, PROFILE_SYNTAX.words!)
      }`,
    );
  }
  return await make(parsed.flags, context);
}

/** Refuses flags that would change nothing. */
function refuseUnread(what: string, read: readonly string[], given: readonly string[]): void {
  const unread = given.find((name) => !read.includes(name));
  if (unread === undefined) return;
  throw new TypeError(
    `Cannot ${what}: flags must be among ${
      read.map((name) => `--${name}`).join(", ")
    }, received --${unread}`,
  );
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
  if (flags["from-trace"] === undefined) return await measure(flags, context);
  const read = ["from-trace", "micro-batch", "out", "json"];
  refuseUnread(`take costs from a trace`, read, Object.keys(given));
  const { "micro-batch": [microBatch = TRACED_MICRO_BATCH, ...more] = [] } = flags;
  if (more.length > 0) {
    throw new TypeError(
      `Cannot take costs from a trace: --micro-batch must be that of its run, received ${
        flags["micro-batch"]
      }`,
    );
  }
  const profile = tracedProfile(flags["from-trace"], microBatch);
  if (flags.out !== undefined) checkOut(flags.out);
  context.begin();
  keep(profile, flags);
  return 0;
}

/** Measures this machine. */
async function measure(flags: ProfileFlags, { begin, signal }: CommandContext): Promise<number> {
  const options = await meterOptions(flags);
  if (flags.out !== undefined) checkOut(flags.out);
  begin("the round under way");
  await using meter = await openMeter(options);
  await meter.round(PROBE_MS);
  meter.reset();
  for (let round = 1; round <= flags.rounds && !signal.aborted; round++) {
    printError(`round ${round} of ${flags.rounds}`);
    await meter.round(PROBE_MS);
  }
  if (signal.aborted) return 130;
  keep(meter.profile(), flags);
  return 0;
}

/** Writes a profile down, and shows it. */
function keep(profile: Profile, { out, json }: ProfileFlags): void {
  const text = JSON.stringify(profile, undefined, 2) + "\n";
  if (out !== undefined) Deno.writeTextFileSync(out, text);
  if (json) print(JSON.stringify(profile));
  else for (const line of describeProfile(profile)) print(inOneLine(line));
}

/** Refuses a file that cannot be written, before anything is measured. */
function checkOut(path: string): void {
  try {
    Deno.openSync(path, { write: true, create: true }).close();
  } catch (error) {
    throw new RangeError(
      `Cannot write the profile to ${inOneLine(path)}: it must be a file that can be written, ` +
        `received ${(error as Error).message}`,
    );
  }
}

async function meterOptions(flags: ProfileFlags): Promise<MeterOptions> {
  const { recompute: policies = ["none"], "micro-batch": sizes = MICRO_BATCHES } = flags;
  const device = await resolveDevice(flags.device, printError);
  const isolate = isolationFor("workers", flags.isolation, device.name);
  const modelOf = await profiledModel(flags), models: MeterOptions["models"][number][] = [];
  for (const microBatch of sizes) {
    const model = await modelOf(microBatch);
    models.push(...policies.map((recompute) => ({ model, microBatch, recompute })));
  }
  return {
    device,
    models,
    sizes: sizesOf(flags),
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
async function check(flags: ProfileFlags, { begin, signal }: CommandContext): Promise<number> {
  const workers = Math.min(workersOf(flags), CHECKED_WORKERS_MAX);
  begin();
  const steps: CheckedStep[] = [];
  const checked = checkProfile({
    configurations: configurationsFor(workers),
    modelOf: (microBatch) => gpt2(CHECKED, microBatch),
    device: (await resolveDevice(flags.device, printError)).name,
    announce: printError,
    signal,
  });
  for await (const step of checked) {
    steps.push(step);
    if (flags.json) print(JSON.stringify(step));
    else for (const line of describeChecked(step, isNear(step))) print(line);
  }
  if (signal.aborted) return 130;
  const result = checkResult(steps);
  for (const line of describeResult(result)) (flags.json ? printError : print)(line);
  return result.isPassed ? 0 : 1;
}
