/**
 * `troupe profile`: what a machine costs, measured or read from a trace; and whether predictions
 * made from it hold.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { WORKERS_MAX } from "../../actors/options/limits.ts";
import { didYouMean } from "../../actors/options/option.ts";
import {
  type CheckedStep,
  checkProfile,
  type CheckResult,
  checkResult,
  configurationsFor,
  isNear,
  type StepParts,
} from "../../actors/planner/check.ts";
import { type MeterOptions, openMeter } from "../../actors/planner/measure.ts";
import type { Profile as MachineProfile } from "../../actors/planner/mod.ts";
import type { Profile } from "../../actors/planner/profile.ts";
import { profileOfTrace } from "../../actors/planner/traced_profile.ts";
import { findComponent, importComponent } from "../../actors/registry/mod.ts";
import type { BuiltModel } from "../../actors/registry/component.ts";
import { isolationFor } from "../../actors/run/devices.ts";
import { gpt2, type Recompute, RECOMPUTE_POLICIES, resolveDevice } from "../../kernels/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  DEVICE_FLAG,
  type FlagValues,
  type GivenFlags,
  withDefaults,
} from "../flag.ts";
import { answersItself, helpOf, parseArguments, refuseOthers } from "../parse.ts";
import { inOneLine, print, printError } from "../terminal.ts";
import {
  BUILT_MODEL_FLAG,
  MODEL_FLAGS,
  noteReads,
  refuseUnread,
  SIZES,
  sizesOfFlags,
} from "../train/flags.ts";
import { refuseOnnxFile } from "../train/onnx.ts";
import { DATA_SIZES, readCounts } from "./plan_flags.ts";
import { openTrace, type TraceHead } from "./trace.ts";

const ms = (value: number | undefined): string => value === undefined ? "" : value.toPrecision(3);

const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** A profile as lines of text. */
export function describeProfile(profile: Profile): string[] {
  const { machine, layers, links, dispatchMs, closing, optimizer, notes } = profile;
  const rows = layers.map((one) => [
    ...[one.kind, one.device, `${one.microBatch}`, one.recompute, `${one.atOnce}`],
    ...[one.forwardMs, one.backwardMs, one.inputMs, one.weightMs].map(ms),
  ]);
  const head = ["layer", "device", "B", "recompute", "at once", "F ms", "B ms", "I ms", "W ms"];
  return [
    `${machine.name}, ${machine.cores} cores: costs of one micro-batch, ${profile.source}`,
    "",
    ...formatTable([head, ...rows], { left: [0, 1, 3] }),
    "",
    ...formatTable([
      ["messages", "latency ms", "GB/s"],
      ...Object.entries(links).map(([name, { latencyMs, bytesPerMs }]) => [
        name,
        ms(latencyMs),
        bytesPerMs === undefined ? "moved" : ms(bytesPerMs / 1e6),
      ]),
    ]),
    "",
    `between two actions lie ${ms(dispatchMs)} ms; a step takes ${
      ms(closing.stepMs)
    } ms to begin and end`,
    `the optimizer takes ${ms(optimizer.msPerMillion)} ms for a million numbers`,
    ...notes,
  ];
}

/** A checked step as lines of text; where the prediction is far off, where the time went. */
export function describeChecked(step: CheckedStep, isNear: boolean): string[] {
  const { configuration, measured, spread, predicted, error, parts, notes } = step;
  const sign = predicted < measured ? "-" : "+";
  const line = `${configuration}: measured ${measured.toFixed(1)} ± ${spread.toFixed(1)} ms, ` +
    `predicted ${predicted.toFixed(1)} (${sign}${percent(error)})${isNear ? "" : ": missed"}`;
  if (isNear && error <= EXPLAINED_ERROR) return [line, ...notes.map((note) => `  ${note}`)];
  return [line, ...partTable(parts), ...notes.map((note) => `  ${note}`)];
}

/** A prediction that is farther off is explained. */
const EXPLAINED_ERROR = 0.05;

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

/** What a check comes to, as lines of text. */
function describeResult(
  { medianError, worstError, missed, isPassed }: CheckResult,
): string[] {
  return [
    "",
    `median error ${percent(medianError)}, worst ${percent(worstError)}: ${
      isPassed ? "within the bounds" : "beyond the bounds"
    }${missed.length > 0 ? `; missed: ${missed.map((one) => one.configuration).join("; ")}` : ""}`,
  ];
}

function readPolicies(text: string): readonly Recompute[] | undefined {
  const policies = text.split(",") as Recompute[];
  return policies.every((one) => RECOMPUTE_POLICIES.includes(one)) ? policies : undefined;
}

const { tokenizer: _, ...OWN_FLAGS } = MODEL_FLAGS;

/** What is measured of the model. */
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
    help: "samples of a micro-batch: each size is measured; that of the run with --from-trace",
  },
  recompute: {
    kind: "own",
    value: "POLICY,…",
    read: readPolicies,
    must: `one or more of ${RECOMPUTE_POLICIES.join(",")}`,
    otherwise: "none",
    help: "activations computed again in the backward: each policy is measured",
  },
} as const;

/** How it is measured. */
const MEASURING = {
  device: DEVICE_FLAG,
  workers: {
    kind: "integer",
    value: "P",
    maximum: WORKERS_MAX,
    otherwise: "as many as there are cores",
    help: "the most workers that compute at once: 1, 2, 4 … up to it are measured",
  },
  isolation: {
    kind: "choice",
    choices: ["worker", "process"],
    otherwise: "worker; process on webgpu",
    help: "what keeps workers apart: threads, or processes",
  },
  rounds: {
    kind: "integer",
    maximum: 1000,
    default: 5,
    help: "rounds, each of which measures everything once",
  },
  out: { kind: "path", value: "FILE", help: "the profile" },
  "from-trace": {
    kind: "path",
    value: "FILE",
    help: "measure nothing: take costs from a trace that troupe train --trace has written",
  },
  json: { kind: "switch", help: "print the profile as JSON; check: one object a line" },
} as const;

/** Every flag of `troupe profile`. */
const PROFILE_FLAGS = { ...MODEL, ...MEASURING, ...COMMON_FLAGS } as const;

/** The values of the flags of `troupe profile`. */
type ProfileFlags = FlagValues<typeof PROFILE_FLAGS>;

/** The declaration of `troupe profile`. */
export const PROFILE_SYNTAX: CommandSyntax = {
  name: "profile",
  summary: "measures what layers, messages and steps cost on this machine",
  usage: [
    "--out FILE [flags]",
    "--from-trace FILE --out FILE [flags]",
    "check [--json] [flags]",
  ],
  about: [
    "Measures what each kind of layer takes for one micro-batch while 1, 2, 4 … workers compute at",
    "once, the latency and bandwidth of messages between them, the optimizer, and what begins and",
    "ends a step. The file is what predictions are made from.",
    "",
    "check predicts steps of some runs and measures them, in one go: 12 or more configurations of",
    "schedules, workers, sizes of a micro-batch, recomputation and uneven stages.",
  ],
  words: ["check"],
  groups: [
    { title: "The model whose layers are measured:", flags: MODEL },
    { title: "How:", flags: { ...MEASURING, ...COMMON_FLAGS } },
  ],
  notes: [
    "Other programs make all that is measured slower: have none.",
    "",
    "Exit codes: 0 done, for check: median error within 5 %, each within 10 % or the measured spread",
    "where that is larger; 1 a check with larger errors, or what failed; 2 bad input.",
  ],
};

type Numbers = Readonly<Record<string, number>>;

/** A model that is measured. */
interface ModelToProfile {
  /** Makes it for so many samples. */
  of(microBatch: number): Promise<BuiltModel>;
  /** Its sizes, for people to read in its profile. */
  readonly sizes: Readonly<Record<string, number>>;
  /** The flags of `troupe train` that name it. */
  readonly flags: NonNullable<MachineProfile["model"]>;
}

/**
 * Finds the model.
 *
 * @param given the flags that were typed.
 * @throws {TypeError} {@linkcode RangeError} (as a rejection) when there is none, it asks its data
 * for other sizes, or does not read one that was typed.
 */
async function profiledModel(
  flags: ProfileFlags,
  given: Readonly<Record<string, unknown>>,
): Promise<ModelToProfile> {
  refuseOnnxFile("Cannot measure layers", flags.model);
  const found = await findComponent("model", flags.model);
  if (!found.isBuiltIn) {
    printError(`model ${found.name}: ${found.from} with hash ${found.integrity}`);
  }
  const { value: part } = await importComponent(found);
  const unknown = part.sizes?.find((name) => !Object.hasOwn(DATA_SIZES, name));
  if (unknown !== undefined) {
    throw new TypeError(
      `Cannot measure ${part.name}: sizes of its data must be among ${
        Object.keys(DATA_SIZES).join(", ")
      }, received ${unknown}`,
    );
  }
  const sizes = sizesOfFlags(flags), { vocab } = sizes;
  const data = { ...DATA_SIZES, ...vocab !== undefined && { vocab } };
  const read = new Set<unknown>();
  const of = async (microBatch: number) =>
    await part.build(noteReads({ ...sizes, data, microBatch }, read));
  await of(1);
  if (found.isBuiltIn) refuseUnread(`Cannot measure ${part.name}`, given, read);
  const isOwn = (option: string) => !found.isBuiltIn || read.has(option);
  const own = Object.entries({ vocab: data.vocab, ...flags }).filter(([flag, value]) =>
    Object.hasOwn(SIZES, flag) && value !== undefined && isOwn(SIZES[flag as keyof typeof SIZES])
  );
  return {
    of,
    sizes: Object.fromEntries(own.filter(([, value]) => typeof value === "number")) as Numbers,
    flags: { model: flags.model, ...Object.fromEntries(own) as Numbers },
  };
}

/** How messages travelled, by where actors ran; workers may have been processes, which no trace says. */
const TRANSPORTS: Readonly<Record<string, string>> = {
  workers: "worker",
  local: "local",
  serial: "local",
  mpi: "mpi",
};

/**
 * Reads the costs of a traced run.
 *
 * @param given samples of a micro-batch of the run, where they were typed; older traces do not say
 * them.
 * @throws {SyntaxError} when it is no trace, or one from before traces told of stages.
 * @throws {RangeError} when it has no step.
 * @throws {TypeError} when nothing says the samples of a micro-batch, or two say others.
 */
function tracedProfile(path: string, given: readonly number[] = []): Profile {
  const refuse = (which = ""): never => {
    throw new TypeError(
      `Cannot take costs from a trace: --micro-batch-size must be that of its run${which}, received ${
        given.join(",") || "none"
      }`,
    );
  };
  if (given.length > 1) refuse();
  const { head, steps } = openTrace(path), about = stagesOf(head, path);
  const { microBatch = given[0] } = about;
  if (microBatch === undefined) return refuse(", which the file does not say");
  if (given.some((one) => one !== microBatch)) refuse(`, ${microBatch}`);
  const transport = TRANSPORTS[head.runtime] ?? "worker", { replicas } = head;
  return profileOfTrace({ ...about, transport, replicas, microBatch }, steps);
}

function stagesOf({ about }: TraceHead, path: string): NonNullable<TraceHead["about"]> {
  if (about && about.parameters.length > 0) return about;
  throw new SyntaxError(
    `Cannot take costs from ${inOneLine(path)}: the trace must say what its stages are, as those ` +
      `do that troupe train --trace writes now, received none; trace a run again`,
  );
}

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
