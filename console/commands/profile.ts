/**
 * `troupe profile`: measures the costs of a machine or reads them from a trace, and checks
 * predictions.
 *
 * @module
 */

import { buildModel } from "../../actors/options/model_definition.ts";
import { existsSync } from "node:fs";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { suggest } from "../../actors/options/option.ts";
import {
  type CheckedStep,
  checkProfile,
  checkResult,
  configurationsFor,
  drawConfigurations,
  isNear,
  OTHERS_LOAD_MAX,
  othersLoad,
  type StepParts,
} from "../../actors/planner/check.ts";
import { type MeterOptions, openMeter } from "../../actors/planner/measure.ts";
import { profileOfTrace } from "../../actors/planner/predict.ts";
import type { Profile } from "../../actors/planner/profile.ts";
import { findComponent, importComponent } from "../../actors/registry/component.ts";
import { isolationFor } from "../../actors/run/devices.ts";
import { gpt2, PRECISIONS, RECOMPUTE_POLICIES } from "../../kernels/mod.ts";
import { refusal, resolveDevice, resolveDevices } from "../../kernels/internal.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { COMMON_FLAGS, DEVICE_FLAG, type FlagValues, type GivenFlags } from "../flag.ts";
import { refuseOthers } from "../parse.ts";
import { ensure, inOneLine, print, printError, writeOutput } from "../terminal.ts";
import {
  BUILT_MODEL_FLAG,
  MODEL_FLAGS,
  noteReads,
  refuseUnread,
  SIZES,
  sizesOfFlags,
} from "../train/flags.ts";
import { refuseOnnxFile } from "../train/onnx.ts";
import { type Command, type Context, defineCommand, percent, someOf } from "./common.ts";
import { DATA_SIZES, readCounts } from "./plan_flags.ts";
import { openTrace } from "./trace.ts";

const { tokenizer: _, ...OWN_FLAGS } = MODEL_FLAGS;

/** Flags of the model. */
const MODEL = {
  ...OWN_FLAGS,
  model: BUILT_MODEL_FLAG,
  vocab: { ...MODEL_FLAGS.vocab, otherwise: "256, as of bytes" },
  "micro-batch-size": {
    kind: "own",
    formerly: "micro-batch",
    aliases: ["batch_size"],
    value: "B,B,…",
    read: readCounts,
    must: "numbers of samples from 1 with commas between them, such as 2,4,8",
    otherwise: "1,2,4,8",
    help: "samples of a micro-batch, one or more to measure; with --from-trace that of its run",
  },
  recompute: someOf(RECOMPUTE_POLICIES, "none", "policies of recomputation to measure"),
  precision: someOf(PRECISIONS, "fp32", "precisions to measure"),
} as const;

/** Flags of the measurement. */
const MEASURING = {
  device: DEVICE_FLAG,
  workers: {
    kind: "integer",
    value: "P",
    maximum: WORKERS_MAX,
    otherwise: "number of cores",
    help: "most workers that compute at the same time: 1, 2, 4 … up to P are measured",
  },
  isolation: {
    kind: "choice",
    choices: ["worker", "process"],
    otherwise: "worker; process on webgpu",
    help: "threads or processes",
  },
  rounds: {
    kind: "integer",
    maximum: 1000,
    default: 5,
    help: "rounds; each measures everything once",
  },
  out: { kind: "path", help: "file of the profile" },
  "from-trace": {
    kind: "path",
    help: "do not measure: take costs from a trace of troupe train --trace",
  },
  seed: {
    kind: "integer",
    value: "N",
    minimum: 0,
    otherwise: "a fixed list",
    help: "check: draws the configurations",
  },
  json: { kind: "switch", help: "print the profile as JSON; check: one object a line" },
} as const;

/** All flags of `troupe profile`. */
const PROFILE_FLAGS = { ...MODEL, ...MEASURING } as const;

type ProfileFlags = FlagValues<typeof PROFILE_FLAGS>;

type GivenProfileFlags = GivenFlags<typeof PROFILE_FLAGS>;

/**
 * Finds the model.
 *
 * @param given the flags that were typed.
 * @throws {TypeError} {@linkcode RangeError} (as a rejection) if there is no such model, it needs
 * other sizes of its data, or does not read a size that was typed.
 */
async function findModel(flags: ProfileFlags, given: GivenProfileFlags) {
  refuseOnnxFile("measure layers", flags.model);
  const found = await findComponent("model", flags.model);
  if (!found.isBuiltIn) {
    printError(`model ${found.name}: ${found.from} with hash ${found.integrity}`);
  }
  const { value: part } = await importComponent(found);
  const unknown = part.sizes?.find((name) => !Object.hasOwn(DATA_SIZES, name));
  const known = Object.keys(DATA_SIZES).join(", ");
  const must = `sizes of its data must be among ${known}`;
  ensure(unknown === undefined, `measure ${part.name}`, must, unknown);
  const sizes = sizesOfFlags(flags), { vocab } = sizes;
  const data = { ...DATA_SIZES, ...vocab !== undefined && { vocab } };
  const read = new Set<unknown>();
  const build = async (microBatch: number) =>
    await buildModel(part, noteReads({ ...sizes, data, microBatch }, read));
  await build(1);
  if (found.isBuiltIn) refuseUnread(`measure ${part.name}`, given, read);
  const isRead = (option: string) => !found.isBuiltIn || read.has(option);
  const own = Object.entries({ vocab: data.vocab, ...flags }).filter(([flag, value]) =>
    Object.hasOwn(SIZES, flag) && value !== undefined && isRead(SIZES[flag as keyof typeof SIZES])
  );
  const numbers = own.filter((one): one is [string, number] => typeof one[1] === "number");
  return {
    /** Builds the model for micro-batches of a size. */
    build,
    /** The sizes of the model, for readers of its profile. */
    sizes: Object.fromEntries(numbers),
    /** The flags of `troupe train` that name the model. */
    flags: { model: flags.model, ...Object.fromEntries(own) as Record<string, number> },
  };
}

/** The transport of messages by the runtime in a trace, which does not say if workers are processes. */
const TRANSPORTS: Readonly<Record<string, string>> = {
  local: "local",
  serial: "local",
  mpi: "mpi",
};

/**
 * Reads the costs of a traced run.
 *
 * @param given the samples of a micro-batch, if typed; older traces do not have them.
 * @throws {SyntaxError} if the file is no trace, or a trace of an older version without stages.
 * @throws {RangeError} if the trace has no step.
 * @throws {TypeError} if the samples of a micro-batch are unknown or ambiguous.
 */
function tracedProfile(path: string, given: readonly number[] = []): Profile {
  const check = (isKnown: boolean, which = "") => {
    const must = `--micro-batch-size must be that of its run${which}`;
    ensure(isKnown, "take costs from a trace", must, given.join(",") || "none");
  };
  check(given.length < 2);
  const { head, steps } = openTrace(path), { about, replicas, runtime } = head;
  const cannot = `take costs from ${inOneLine(path)}`, received = "none; trace a run again";
  const must = "the trace must have stages, like those that troupe train --trace writes now";
  ensure(about && about.parameters.length > 0, cannot, must, received, SyntaxError);
  const { microBatch = given[0] ?? 0 } = about;
  check(microBatch > 0, ", which the file does not say");
  check(given.every((one) => one === microBatch), `, ${microBatch}`);
  const transport = TRANSPORTS[runtime] ?? "worker";
  return profileOfTrace({ ...about, transport, replicas, microBatch }, steps);
}

/** `troupe profile`. */
export const profileCommand: Command = defineCommand({
  name: "profile",
  summary: "measures the costs of layers, messages and steps on this machine",
  usage: [
    "--out FILE [flags]",
    "--from-trace FILE --out FILE [flags]",
    "check [--seed N] [--json] [flags]",
  ],
  about: [
    "Measures the time of each kind of layer for one micro-batch while 1, 2, 4 … workers compute at",
    "the same time, the latency and bandwidth of messages, the optimizer, and the start and end of a",
    "step. Predictions are made from this file.",
    "",
    "check predicts and measures the steps of 14 configurations of schedules, workers, sizes of a",
    "micro-batch, recomputation and uneven stages (22 on four cores or more); with --seed, of 16 that",
    "are drawn. While other programs use more than 5 % of the machine, it ends: not calibrated.",
  ],
  words: ["check"],
  flags: PROFILE_FLAGS,
  groups: {
    "The model whose layers are measured:": MODEL,
    "The measurement:": { ...MEASURING, ...COMMON_FLAGS },
  },
  notes: [
    "Other programs slow down the measurement: close them.",
    "",
    "Exit codes: 0 done, for check: median error within 5 %, each within 12 %; 1 a check with larger",
    "errors or without calibration, or a failure; 2 bad input.",
  ],
  needsArguments: true,
  run: async ({ words, given, flags }, context) => {
    const [word, ...more] = words;
    if (word === "check" && more.length === 0) {
      refuseOthers("check", ["device", "workers", "json", "seed"], given);
      return await check(flags, context);
    }
    if (word !== undefined) {
      const called = inOneLine(`profile ${words.join(" ")}`), near = suggest(word, ["check"]);
      throw new TypeError(`Cannot run "${called}": it must be check, or flags alone${near}`);
    }
    const { seed, out, json } = flags, cannot = "make a profile";
    ensure(seed === undefined, cannot, "--seed must come with check", `${seed} alone`);
    const must = "--out must name its file, or --json print it";
    ensure(out !== undefined || json, cannot, must, "neither");
    if (flags["from-trace"] === undefined) return await measure(flags, given, context);
    const read = ["from-trace", "micro-batch-size", "out", "json"];
    refuseOthers("take costs from a trace", read, given);
    const profile = tracedProfile(flags["from-trace"], given["micro-batch-size"]);
    if (out !== undefined) checkOut(out);
    context.begin();
    writeProfile(profile, flags);
  },
});

/** Milliseconds for which a round measures each model under each load. */
const PROBE_MS = 500;

/** Measures this machine. */
async function measure(
  flags: ProfileFlags,
  given: GivenProfileFlags,
  { begin, signal }: Context,
): Promise<number> {
  const model = await findModel(flags, given), options = await meterOptions(flags, model);
  if (flags.out !== undefined) checkOut(flags.out);
  begin();
  const meter = await openMeter(options);
  await meter.round(PROBE_MS);
  meter.reset();
  begin(""); // from here a signal ends it with the completed rounds
  const aborted = new Promise((resolve) => signal?.addEventListener("abort", resolve));
  let rounds = 0;
  while (!signal?.aborted && rounds < flags.rounds) {
    printError(`round ${rounds + 1} of ${flags.rounds}`);
    await Promise.race([meter.round(PROBE_MS).then(() => rounds++), aborted]);
  }
  if (rounds > 0) writeProfile({ ...meter.profile(), model: model.flags }, flags);
  if (signal?.aborted) return 130; // without waiting for the current round
  await meter[Symbol.asyncDispose]();
  return 0;
}

/** Writes a profile to its file, and prints it. */
function writeProfile(profile: Profile, { out, json }: ProfileFlags): void {
  const text = JSON.stringify(profile, undefined, 2) + "\n";
  if (out !== undefined) writeOutput(out, text);
  if (json) {
    print(JSON.stringify(profile));
    profile.notes.forEach(printError);
  } else describeProfile(profile).forEach((line) => print(inOneLine(line)));
}

/** Checks, before anything is measured, that a file can be written. */
function checkOut(path: string): void {
  try {
    const isNew = !existsSync(path);
    // Opening a pipe waits for its other end.
    if (!isNew && Deno.statSync(path).isFifo) throw new TypeError("a pipe");
    Deno.openSync(path, { write: true, create: true }).close();
    if (isNew) Deno.removeSync(path);
  } catch (error) {
    const must = "it must be a file that can be written";
    throw refusal(`write the profile to ${inOneLine(path)}`, must, error);
  }
}

async function meterOptions(
  flags: ProfileFlags,
  { build, sizes }: Awaited<ReturnType<typeof findModel>>,
): Promise<MeterOptions> {
  const { recompute: policies = ["none"], "micro-batch-size": samples = [1, 2, 4, 8] } = flags;
  const { precision: precisions = ["fp32"] } = flags;
  // Only the precision bf16 needs a separate library.
  const precision = precisions.find((one) => one === "bf16") ?? precisions[0];
  const [device] = await resolveDevices(flags.device, { precision, announce: printError });
  const isolate = isolationFor("workers", flags.isolation, device.name);
  const models: MeterOptions["models"][number][] = [];
  for (const microBatch of new Set(samples)) {
    const model = await build(microBatch);
    for (const recompute of policies) {
      for (const precision of precisions) models.push({ model, microBatch, recompute, precision });
    }
  }
  const most = workersOf(flags), loads: number[] = [];
  for (let load = 1; load < most; load *= 2) loads.push(load);
  loads.push(most);
  return { device, models, sizes, loads, isolate, links: ["local", "worker", "process"] };
}

function workersOf({ workers }: ProfileFlags): number {
  const cores = navigator.hardwareConcurrency;
  const must = `--workers must be at most the ${cores} cores of this machine, ` +
    "as more of them would wait for each other";
  ensure(workers === undefined || workers <= cores, "measure", must, workers, RangeError);
  return workers ?? cores;
}

const ms = (value: number | undefined): string => value === undefined ? "" : value.toPrecision(3);

/** Returns a profile as lines of text. */
export function describeProfile(profile: Profile): string[] {
  const { machine, layers, links, dispatchMs, closing, optimizer, notes } = profile;
  const rows = layers.map((one) => [
    ...[one.kind, one.device, `${one.microBatch}`, one.recompute, one.precision, `${one.atOnce}`],
    ms(one.heldParameters && one.heldParameters / 1e6),
    ...[one.forwardMs, one.backwardMs, one.inputMs, one.weightMs].map(ms),
  ]);
  const head = [
    "layer",
    "device",
    "B",
    "recompute",
    "precision",
    "at once",
    "held M",
    "F ms",
    "B ms",
    "I ms",
    "W ms",
  ];
  const linkRows = Object.entries(links).map(([name, { latencyMs, bytesPerMs }]) => [
    ...[name, ms(latencyMs), bytesPerMs === undefined ? "moved" : ms(bytesPerMs / 1e6)],
  ]);
  return [
    `${machine.name}, ${machine.cores} cores: costs of one micro-batch, ${profile.source}`,
    "",
    ...formatTable([head, ...rows], { left: [0, 1, 3, 4] }),
    "",
    ...formatTable([["messages", "latency ms", "GB/s"], ...linkRows]),
    "",
    `${ms(dispatchMs)} ms between two actions; ${ms(closing.stepMs)} ms to start and end a step`,
    `the optimizer takes ${ms(optimizer.msPerMillion)} ms for a million numbers`,
    ...notes,
  ];
}

/** The model whose steps are checked, small enough that the check takes minutes. */
const CHECKED = { layers: 4, hidden: 256, heads: 4, seq: 64, vocab: 512 };

/** Maximum number of workers that are checked. */
const CHECKED_WORKERS_MAX = 4;

/** Milliseconds for which the load of other programs is measured. */
const LOAD_MS = 1000;

/** Predicts and measures steps. */
async function check(flags: ProfileFlags, { begin }: Context): Promise<number> {
  const workers = Math.min(workersOf(flags), CHECKED_WORKERS_MAX);
  begin();
  const load = await othersLoad(LOAD_MS);
  if (load > OTHERS_LOAD_MAX) {
    printError(`not calibrated: other programs use ${percent(load)} of this machine`);
    return 1;
  }
  const steps: CheckedStep[] = [];
  const checked = checkProfile({
    configurations: flags.seed === undefined
      ? configurationsFor(workers)
      : drawConfigurations(flags.seed, workers),
    modelOf: (microBatch) => gpt2(CHECKED, microBatch),
    device: (await resolveDevice(flags.device, printError)).name,
    announce: printError,
  });
  for await (const step of checked) {
    steps.push(step);
    if (flags.json) print(JSON.stringify(step));
    else describeChecked(step, isNear(step)).forEach(print);
  }
  const result = checkResult(steps);
  for (const line of ["", describeResult(result)]) (flags.json ? printError : print)(line);
  return result.isPassed ? 0 : 1;
}

/** Errors of a prediction above which the parts of the step are printed. */
const EXPLAINED_ERROR = 0.05;

/** Returns a checked step as lines of text, with its parts if the prediction is far off. */
export function describeChecked(step: CheckedStep, isNear: boolean): string[] {
  const { configuration, measured, spread, predicted, error, parts, notes } = step;
  const sign = predicted < measured ? "-" : "+";
  return [
    `${configuration}: measured ${measured.toFixed(1)} ± ${spread.toFixed(1)} ms, ` +
    `predicted ${predicted.toFixed(1)} (${sign}${percent(error)})${isNear ? "" : ": missed"}`,
    ...isNear && error <= EXPLAINED_ERROR ? [] : partTable(parts),
    ...notes.map((note) => `  ${note}`),
  ];
}

function partTable({ measured, predicted }: CheckedStep["parts"]): string[] {
  const row = (name: string, of: (parts: StepParts) => number | undefined) => [
    `  ${name}`,
    ...[measured, predicted].map((parts) => of(parts)?.toFixed(2) ?? ""),
  ];
  return formatTable([
    ["  mean of the workers, ms", "measured", "predicted"],
    row("busy", ({ busyMs }) => busyMs),
    row("between actions", ({ dispatchMs }) => dispatchMs),
    row("messages", ({ messageMs }) => messageMs),
    row("bubble", ({ bubbleMs }) => bubbleMs),
    row("begin and end of the step", ({ closingMs }) => closingMs),
    ...Object.keys(measured.actions).map((name) => row(name, ({ actions }) => actions[name])),
  ]);
}

function describeResult(
  { medianError, worstError, missed, isPassed }: ReturnType<typeof checkResult>,
): string {
  const names = missed.map((one) => one.configuration).join("; ");
  const bounds = isPassed ? "within the bounds" : "beyond the bounds";
  const errors = `median error ${percent(medianError)}, worst ${percent(worstError)}`;
  return `${errors}: ${bounds}${names && `; missed: ${names}`}`;
}
