/**
 * Options that a script leaves to the run: its model, steps and folder, and the facts for `run.json`.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { locateCheckpoint } from "../checkpoints/read.ts";
import { encodeConfig } from "../checkpoints/write.ts";
import type { Model } from "../../kernels/mod.ts";
import { isSource } from "../options/data_source.ts";
import { buildModel, checkDataSizes, scriptModelOptions } from "../options/model_definition.ts";
import type { Options } from "../options/option.ts";
import type { RunOptions, TrainOptions } from "../options/train_options.ts";
import { readOptions, TRAIN } from "../options/train_table.ts";
import { refuseBranch, runFolder, runToResume } from "../run_folder/folders.ts";
import { checkRunFiles, type RunFacts } from "../run_folder/write.ts";
import { withJobs } from "./jobs.ts";

/**
 * Builds a model from its definition, counts the steps of epochs, finds the checkpoint that `resume`
 * names, and sets the folder of checkpoints to `out`.
 *
 * @throws {TypeError} {@linkcode RangeError} {@linkcode SyntaxError} in one sentence for the user.
 */
export async function placeRun(given: TrainOptions): Promise<RunOptions> {
  return given?.jobs ? await placeJobs(given) : await placeOne(given as DataOptions);
}

/** Options of a run with data, which are read before that is used. */
type DataOptions = TrainOptions & Pick<RunOptions, "data">;

/** The same for jobs, whose adapters are written to `out`, and their checkpoints if there are some. */
async function placeJobs(given: TrainOptions): Promise<RunOptions> {
  const { out, checkpoint, ...others } = withJobs(given), { directory = out } = checkpoint ?? {};
  const placed = { ...others, ...checkpoint && { checkpoint: { ...checkpoint, directory } } };
  return { ...await placeOne(placed), ...out !== undefined && { out } };
}

async function placeOne(options: DataOptions): Promise<RunOptions> {
  const { resume: named, checkpoint, announce, out: given } = readOptions(options);
  const { epochs: _, ...others } = options;
  const kept = keptData(options), own = checkpoint?.config ?? {};
  const config = kept ? { ...kept, ...encodeConfig(own) } : own;
  const sized = {
    ...{ ...others, steps: stepsOf(options), model: await modelOf(options) },
    ...kept && checkpoint && { checkpoint: { ...checkpoint, config } },
  };
  if (typeof named !== "string" && given === undefined) return sized as RunOptions;
  const { overwrite, directory } = checkpoint ?? {};
  let resume: RunOptions["resume"], out = given;
  if (typeof named === "string") {
    const path = runToResume(named, out);
    if (directory === undefined) out ??= runFolder(path);
    resume = await locateCheckpoint(path, announce);
    if (!resume) announce(`There is no checkpoint in ${path}: starting at step 1.`);
    else if (!overwrite) await refuseBranch(path, resume, out ?? directory!);
  } else resume = named;
  if (out === undefined) return { ...sized, resume } as RunOptions;
  checkRunFiles({ directory: out, resume, overwrite });
  return { ...sized, out, resume, checkpoint: { ...checkpoint, config, directory: out } };
}

/** Returns the steps of a run: as given, or the whole steps of its epochs. */
function stepsOf({ steps, epochs, data, microBatches = 4, replicas = 1 }: DataOptions): number {
  if (epochs === undefined) return steps!;
  const { length } = isSource(data) ? data : {}, ofStep = microBatches * replicas;
  const count = Math.floor(epochs * (length ?? 0) / ofStep);
  if (count >= 1) return count;
  throw new RangeError(
    `Cannot train: epochs must have a step at least, of ${ofStep} micro-batches, received ${
      length === undefined ? "data without a length" : `${epochs} of ${length} micro-batches`
    }`,
  );
}

/** Returns the model of a run, built for the samples of its data. */
async function modelOf({ model, data }: DataOptions): Promise<Model> {
  if (!("build" in model)) return model;
  const { samples, sizes } = isSource(data) ? data : {};
  const cannot = `Cannot train ${model.name}`;
  if (samples !== undefined) {
    checkDataSizes(cannot, model, sizes);
    return await buildModel(model, scriptModelOptions(samples, sizes));
  }
  throw new TypeError(
    `${cannot}: its data must have from and samples, received ${
      isSource(data) ? "no samples" : "an iterable"
    }`,
  );
}

/** Returns what checkpoints keep of the data of a definition, for `loadModel()`. */
function keptData({ model, data }: DataOptions): Readonly<Record<string, unknown>> | undefined {
  if (!("build" in model) || !isSource(data)) return undefined;
  const { sizes = {}, classes = {} } = data;
  return { architecture: model.name, sizes, classes };
}

/** Returns the facts of a run of a script for its `run.json`. */
export function scriptFacts(options: RunOptions): RunFacts {
  const { kind: optimizer = "adamw" } = options.optimizer ?? {};
  return {
    flags: { ...valuesOfFlags(TRAIN, readOptions(options)), optimizer },
    command: [],
    script: scriptPath(),
    data: { name: "script" },
  };
}

/** Returns the path of the program, or its URL if it is not a file. */
function scriptPath(): string {
  const { mainModule = "a worker" } = Deno;
  return mainModule.startsWith("file:") ? fileURLToPath(mainModule) : mainModule;
}

/** Returns the values of options by the names of their flags, without paths. */
function valuesOfFlags(table: Options, options: object): Readonly<Record<string, unknown>> {
  const given = options as Readonly<Record<string, unknown>>;
  const values = Object.entries(table).map(([option, { flag, fields }]) => {
    const value = given[option];
    if (value === undefined || typeof value === "function") return {};
    if (fields && typeof value === "object") return valuesOfFlags(fields, value!);
    const name = option === "learningRate" ? "lr" : flag?.isPath ? undefined : flag?.name;
    if (name === undefined) return {};
    if (typeof value === "number") return { [name]: value / (flag?.factor ?? 1) };
    return { [name]: option === "schedule" ? nameOf(value) : value };
  });
  return Object.assign({}, ...values);
}

const nameOf = (schedule: unknown) =>
  typeof schedule === "string" ? schedule : (schedule as { readonly name: string }).name;

/** Milliseconds within which signals count as one: a terminal and a parent may both send it. */
const SAME_SIGNAL_MS = 1000;

/** A signal that Ctrl-C aborts; disposing of it restores the system's reaction to Ctrl-C. */
export interface Interrupt extends Disposable {
  readonly signal: AbortSignal;
}

/** Aborts on the first SIGINT or SIGTERM, and ends the program on the next one. */
export function onInterrupt(announce: (line: string) => void): Interrupt {
  const controller = new AbortController();
  const names: Deno.Signal[] = Deno.build.os === "windows" ? ["SIGINT"] : ["SIGINT", "SIGTERM"];
  let first: number | undefined;
  const interrupt = () => {
    first ??= performance.now();
    if (performance.now() - first > SAME_SIGNAL_MS) Deno.exit(130);
    if (controller.signal.aborted) return;
    controller.abort();
    announce("Finishing the step under way; press Ctrl-C again to end immediately.");
  };
  for (const name of names) Deno.addSignalListener(name, interrupt);
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      for (const name of names) Deno.removeSignalListener(name, interrupt);
    },
  };
}
