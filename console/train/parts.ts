/**
 * The parts of a run and its options, as the flags say. The parts are built in or from the user's
 * modules; the records of these modules in checkpoints are enough to recognize a module, but a record
 * never imports one.
 *
 * @module
 */

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { readGroups, readLora } from "../../actors/options/limits.ts";
import type { ModelComponent } from "../../actors/options/model_definition.ts";
import type { TrainOptions } from "../../actors/options/train_options.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import { PROTOCOL_VERSION } from "../../actors/pipeline/protocol.ts";
import {
  type DataComponent,
  findComponent,
  type FoundComponent,
  importComponent,
  type ImportedComponent,
  type OptimizerComponent,
} from "../../actors/registry/component.ts";
import { builtInNames } from "../../actors/registry/registry.ts";
import { openTask, type Task } from "../../actors/registry/task.ts";
import type { KeptComponent, KeptComponents } from "../../actors/run_folder/metrics_file.ts";
import type { RunFacts } from "../../actors/run_folder/write.ts";
import { packageActor } from "../../actors/sandbox/host.ts";
import { decodeLengths } from "../../kernels/internal.ts";
import { parseTokenizer, type TokenizerName } from "../../kernels/mod.ts";
import { scheduleOptionsOf } from "../commands/schedule_flags.ts";
import { optionsOfFlags } from "../flag.ts";
import { ensure, inOneLine, printError, quoted } from "../terminal.ts";
import { untrusted } from "./data_files.ts";
import {
  INHERITED_FLAGS,
  noteReads,
  OPTIMIZER_SETTINGS,
  refuseUnread,
  sizesOfFlags,
} from "./flags.ts";
import { isOnnxFile, onnxModel } from "./onnx.ts";
import type { TrainRequest } from "./request.ts";

/** Kinds of parts of a run. Each has a flag of the same name. */
const RUN_COMPONENTS = ["model", "data", "optimizer", "supervisor"] as const;

type RunComponentKind = (typeof RUN_COMPONENTS)[number];

/** The parts of a run. */
export type RunComponents = { readonly [Kind in RunComponentKind]: ImportedComponent<Kind> };

/** Returns the records of the user's modules among the parts of a run. */
export function keptComponents(parts: RunComponents): KeptComponents {
  return Object.fromEntries(
    RUN_COMPONENTS.map((kind) => parts[kind]).filter(({ isBuiltIn }) => !isBuiltIn)
      .map(({ kind, name, from, integrity }) => [kind, { name, from, integrity }]),
  );
}

/** Returns the facts of a run for its `run.json`. */
export function factsOf(
  { typed, args, flags, files, tokenizer }: TrainRequest,
  components: RunComponents,
): RunFacts {
  const parts = keptComponents(components), { name, value } = components.data;
  const hash = (files.tokens ?? files.text)?.sha256 ?? parts.data?.integrity ?? value.sha256;
  return {
    flags,
    command: typed,
    repeated: args,
    parts,
    data: { name, ...hash !== undefined && { hash } },
    ...tokenizer && { tokenizer: tokenizer.content },
  };
}

/**
 * Finds and imports the parts of a run. The user's modules are printed with their hashes before they
 * run.
 *
 * @throws {TypeError} {@linkcode RangeError} (as a rejection) in one sentence for the user.
 */
export async function importComponents(request: TrainRequest): Promise<RunComponents> {
  const { flags } = request;
  const model = takeOnnx(request) ?? await take(request, "model", flags.model);
  const data = await take(request, "data", nameOfData(request, model));
  const optimizer = await take(request, "optimizer", flags.optimizer);
  const supervisor = await take(request, "supervisor", flags.supervisor);
  return { model, data, optimizer, supervisor };
}

/** Builds the task of a run from its model, data and flags. */
export async function taskOf(request: TrainRequest, { model, data }: RunComponents): Promise<Task> {
  const { flags, files, microBatches, tokenizer: file, onnx } = request;
  const { replicas, steps, seed, dropout } = flags, documents = files["token-lengths"];
  const isGrouped = flags["group-by-length"] && !flags.lengths;
  ensure(!isGrouped, "group by length", "--lengths must be given with --group-by-length");
  // No flag selects another built-in tokenizer.
  const tokenizer = file
    ? await parseTokenizer(file.content, inOneLine(file.path))
    : flags.tokenizer as TokenizerName | undefined;
  const read = new Set<unknown>(), { value: built } = model, { value: opened } = data;
  const build: ModelComponent["build"] = (options) => {
    const made = built.build(noteReads(options, read));
    // A user's part may read its options later, when a layer is built.
    if (!(model.isBuiltIn || onnx) || !data.isBuiltIn) return made;
    return Promise.resolve(made).then((done) => {
      refuseUnread(`train ${built.name}`, typedOf(request), read);
      return done;
    });
  };
  const open: DataComponent["open"] = (options) => opened.open(noteReads(options, read));
  const modelComponent = Object.create(built, { build: { value: build } });
  return await openTask(modelComponent, Object.create(opened, { open: { value: open } }), {
    ...sizesOfFlags(flags),
    ...{ tokenizer, replicas, steps, seed, microBatches, dropout },
    microBatch: flags["micro-batch-size"],
    file: files.tokens ?? files.text,
    ...{ lengths: flags.lengths, groupByLength: flags["group-by-length"] },
    documents: documents && decodeLengths(documents.content, documents.path),
    announce: printError,
  });
}

function nameOfData(
  { flags, files, given }: TrainRequest,
  model: ImportedComponent<"model">,
): string {
  const file = files.tokens ? "tokens" : files.text ? "text" : undefined;
  const isOwn = flags.data !== undefined && !INHERITED_FLAGS.data.choices.includes(flags.data);
  const isTwice = file && given.includes("data") && isOwn;
  ensure(!isTwice, "train", "the data must come from one place", `--data and --${file}`);
  const name = file ?? flags.data ?? model.value.data;
  ensure(name !== undefined, `train ${model.value.name}`, "--data must name its training data");
  return name;
}

/** Returns the model of an ONNX file; undefined if the run trains another model. */
function takeOnnx(request: TrainRequest): ImportedComponent<"model"> | undefined {
  const { onnx, flags } = request;
  if (!onnx) return undefined;
  const { path, integrity } = onnx, from = pathToFileURL(resolve(path)).href;
  const found = { kind: "model", name: path, from, integrity, isBuiltIn: false } as const;
  checkSameComponent(request, found);
  return { ...found, value: onnxModel(onnx, flags) };
}

async function take<K extends RunComponentKind>(
  request: TrainRequest,
  kind: K,
  name: string,
): Promise<ImportedComponent<K>> {
  const found = await findComponent(kind, name);
  checkSameComponent(request, found);
  const instead = builtInNames(kind).includes(name) ? `, in place of Troupe's own` : "";
  if (!found.isBuiltIn) {
    printError(`${kind} ${name}: ${found.from} with hash ${found.integrity}${instead}`);
  }
  return await importComponent(found);
}

/** Checks that a run gets the parts of the earlier run, and imports only modules the user named. */
function checkSameComponent({ before, given, typed }: TrainRequest, found: FoundComponent): void {
  if (!before) return;
  const kind = found.kind as RunComponentKind, { path, config, doing } = before;
  // A resumed run may have another supervisor.
  if (kind === "supervisor" && doing === "resume from") return;
  const kept = readKept(before, kind), isGiven = given.includes(kind);
  const cannot = `${doing} ${path}`, must = `--${kind} must name`;
  const received = `${quoted(found.name)}, ${found.from} with hash ${found.integrity}`;
  if (!kept) {
    const isFixed = kind === "model" && doing === "resume from";
    const { [kind]: own } = (config.flags ?? {}) as Record<string, unknown>;
    const ours = `${must} what its run used, the ${own ?? found.name} that comes with Troupe`;
    ensure(found.isBuiltIn || (isGiven && !isFixed), cannot, ours, received, RangeError);
    return;
  }
  const isFile = isOnnxFile(kept.name), what = isFile ? "file" : "module";
  const same = `${must} the ${what} that its run used`;
  if (!isGiven) {
    const why = `because a file may not ${isFile ? "open another" : "import one"}`;
    throw untrusted(cannot, `${same}, ${why}`, "train", [...typed, `--${kind}`, kept.name]);
  }
  const other = found.isBuiltIn ? `${quoted(found.name)}, which comes with Troupe` : received;
  const hashed = `${same}, ${kept.from} with hash ${kept.integrity}`;
  ensure(found.integrity === kept.integrity, cannot, hashed, other, RangeError);
}

/** Largest number of characters of a module's text in a checkpoint. */
const TEXT_MAX = 2000;

function readKept(
  { path, config, doing }: NonNullable<TrainRequest["before"]>,
  kind: RunComponentKind,
): KeptComponent | undefined {
  const { [kind]: kept } = (config.parts ?? {}) as Record<string, unknown>;
  if (kept === undefined) return undefined;
  const { name, from, integrity } = (kept ?? {}) as Record<string, unknown>;
  const areTexts = [name, from, integrity].every((text) =>
    typeof text === "string" && text.length <= TEXT_MAX
  );
  const must = `its ${kind} must have a name, a module and a hash`;
  ensure(areTexts, `${doing} ${path}`, must, quoted(kept));
  return kept as KeptComponent;
}

/**
 * The part of a run's options that the flags decide: all but the model and its data.
 *
 * @param program URL of the module that trains, which a journal wants to know.
 */
export function runOptions(
  request: TrainRequest,
  { optimizer, supervisor }: Pick<RunComponents, "optimizer" | "supervisor">,
  program?: string,
): Omit<TrainOptions, "model" | "data"> {
  const { args, flags, schedule, microBatches, checkpoint } = request;
  const given = optionsOfFlags(TRAIN, flags) as unknown as Omit<TrainOptions, "model" | "data">;
  const { journal, ema, "param-groups": groups } = flags;
  return {
    ...given,
    lora: flags.lora === undefined ? undefined : readLora(flags.lora),
    schedule,
    microBatches,
    scheduleOptions: scheduleOptionsOf(flags),
    learningRate: { ...given.learningRate as object, warmup: flags.warmup ?? 0 },
    journal: journal === undefined ? undefined : {
      ...given.journal,
      path: journal,
      configuration: { train: args },
      program: program === undefined ? [] : [program],
    },
    nats: flags.runtime === "nats" ? given.nats : undefined,
    trace: isTraced(flags),
    optimizer: {
      ...optimizerOf(request, optimizer.value),
      ...ema !== undefined && { ema },
      ...groups !== undefined && { groups: readGroups(groups) },
    },
    supervisor: supervisor.isBuiltIn ? undefined : specOf(supervisor),
    resume: checkpoint,
    out: undefined,
    checkpoint: undefined,
    evaluation: undefined,
  };
}

/** Returns the optimizer with the settings of the flags. @throws {TypeError} if it reads fewer. */
function optimizerOf(request: TrainRequest, optimizer: OptimizerComponent) {
  const { beta1, beta2, momentum, "weight-decay": weightDecay } = request.flags;
  const read = new Set<unknown>();
  const settings = optimizer.options(noteReads({ beta1, beta2, momentum, weightDecay }, read));
  const reader = [`optimizer ${optimizer.name}`, OPTIMIZER_SETTINGS] as const;
  refuseUnread("train", typedOf(request), read, reader);
  return settings;
}

/** Returns the flags that were typed, with their values. */
const typedOf = ({ flags, given }: TrainRequest): Readonly<Record<string, unknown>> =>
  Object.fromEntries(Object.entries(flags).filter(([name]) => given.includes(name)));

/** Returns whether workers tell when each action ran. */
export const isTraced = ({ trace, dashboard }: TrainRequest["flags"]): boolean =>
  trace !== undefined || dashboard === true;

/** Returns the spec of an actor that the user has chosen, and so trusts. */
const specOf = (
  { from, export: exported, kind, integrity, lock }: RunComponents["supervisor"],
): TrainOptions["supervisor"] =>
  packageActor({
    ...{ from, export: exported ?? kind, protocol: PROTOCOL_VERSION, permissions: "inherit" },
    ...integrity !== undefined && { integrity },
    ...lock !== undefined && { lock },
  });
