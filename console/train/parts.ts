/**
 * The parts of a run, by name or by the module that the user named; and what its checkpoints
 * remember of the latter: enough to know them again, and nothing that would import them.
 *
 * @module
 */

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { commandLine } from "../../actors/options/limits.ts";
import { builtInNames } from "../../actors/registry/registry.ts";
import {
  type DataComponent,
  findComponent,
  type FoundComponent,
  importComponent,
  type ImportedComponent,
  type ModelComponent,
} from "../../actors/registry/component.ts";
import { openTask, type Task } from "../../actors/registry/task.ts";
import { parseTokenizer, type TokenizerName } from "../../kernels/mod.ts";
import { inOneLine, printError, quoted } from "../terminal.ts";
import { shellWord } from "./data_files.ts";
import { INHERITED_FLAGS, noteReads, refuseUnread, sizesOfFlags } from "./flags.ts";
import { isOnnxFile, onnxModel } from "./onnx.ts";
import type { TrainRequest } from "./request.ts";
import type { KeptComponent, KeptComponents } from "../run_files/run_folder.ts";

/** The kinds of parts that a run has; each is named by the flag of its name. */
const RUN_COMPONENTS = ["model", "data", "optimizer", "supervisor"] as const;

type RunComponentKind = (typeof RUN_COMPONENTS)[number];

/** The parts of a run. */
export type RunComponents = { readonly [Kind in RunComponentKind]: ImportedComponent<Kind> };

/** The modules of the user's among the parts of a run. */
export function keptComponents(parts: RunComponents): KeptComponents {
  return Object.fromEntries(
    RUN_COMPONENTS.map((kind) => parts[kind]).filter(({ isBuiltIn }) => !isBuiltIn)
      .map(({ kind, name, from, integrity }) => [kind, { name, from, integrity }]),
  );
}

/**
 * Finds the parts of a run and imports them. Modules of the user's are told with their hashes before
 * they run.
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

/** What the model of a run and its data make, by the flags. */
export async function taskOf(request: TrainRequest, { model, data }: RunComponents): Promise<Task> {
  const { flags, files, microBatches, tokenizer: file, given, onnx } = request;
  const { replicas, steps, seed, dropout } = flags;
  // No flag names another tokenizer that comes with Troupe.
  const tokenizer = file
    ? await parseTokenizer(file.content, inOneLine(file.path))
    : flags.tokenizer as TokenizerName | undefined;
  const read = new Set<unknown>(), { value: built } = model, { value: opened } = data;
  const typed = Object.fromEntries(Object.entries(flags).filter(([name]) => given.includes(name)));
  const build: ModelComponent["build"] = async (options) => {
    const made = await built.build(noteReads(options, read));
    // A part of the user's may read its options later, when a layer is built.
    const isRead = (model.isBuiltIn || onnx) && data.isBuiltIn;
    if (isRead) refuseUnread(`Cannot train ${built.name}`, typed, read);
    return made;
  };
  const open: DataComponent["open"] = (options) => opened.open(noteReads(options, read));
  const modelComponent = Object.create(built, { build: { value: build } });
  return await openTask(modelComponent, Object.create(opened, { open: { value: open } }), {
    ...sizesOfFlags(flags),
    ...{ tokenizer, replicas, steps, seed, microBatches, dropout },
    microBatch: flags["micro-batch-size"],
    file: files.tokens ?? files.text,
    announce: printError,
  });
}

function nameOfData(
  { flags, files, given }: TrainRequest,
  model: ImportedComponent<"model">,
): string {
  const file = files.tokens ? "tokens" : files.text ? "text" : undefined;
  const isOwn = flags.data !== undefined && !INHERITED_FLAGS.data.choices.includes(flags.data);
  if (file && given.includes("data") && isOwn) {
    throw new TypeError(
      `Cannot train: the data must come from one place, received --data and --${file}`,
    );
  }
  const name = file ?? flags.data ?? model.value.data;
  if (name !== undefined) return name;
  throw new TypeError(
    `Cannot train ${model.value.name}: --data must name what it learns from, received none`,
  );
}

/** The model of an ONNX file, where one is trained. */
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

/** Makes sure that a run which remembers its parts gets the same, and no module that nobody named. */
function checkSameComponent({ before, given, typed }: TrainRequest, found: FoundComponent): void {
  if (!before) return;
  const kind = found.kind as RunComponentKind, { path, config, doing } = before;
  // Who supervises may change when a run goes on.
  if (kind === "supervisor" && doing === "resume from") return;
  const kept = readKept(before, kind), isGiven = given.includes(kind);
  const cannot = `Cannot ${doing} ${path}: --${kind} must name`;
  const received = `received ${quoted(found.name)}, ${found.from} with hash ${found.integrity}`;
  if (!kept) {
    const isFixed = kind === "model" && doing === "resume from";
    if (found.isBuiltIn || (isGiven && !isFixed)) return;
    const { [kind]: own } = (config.flags ?? {}) as Record<string, unknown>;
    throw new RangeError(
      `${cannot} what its run used, the ${own ?? found.name} that comes with Troupe, ${received}`,
    );
  }
  const what = `the ${isOnnxFile(kept.name) ? "file" : "module"} that its run used`;
  if (!isGiven) {
    const command = [...typed, `--${kind}`, kept.name].map(shellWord).join(" ");
    throw new TypeError(
      `${cannot} ${what}, as no file ${
        isOnnxFile(kept.name) ? "opens another" : "imports one"
      }, received none; if you trust it, type: ${commandLine("train", command)}`,
    );
  }
  if (found.integrity === kept.integrity) return;
  throw new RangeError(
    `${cannot} ${what}, ${kept.from} with hash ${kept.integrity}, ${
      found.isBuiltIn ? `received ${quoted(found.name)}, which comes with Troupe` : received
    }`,
  );
}

/** Characters of what a checkpoint says of a module. */
const TEXT_MAX = 2000;

function readKept(
  { path, config, doing }: NonNullable<TrainRequest["before"]>,
  kind: RunComponentKind,
): KeptComponent | undefined {
  const { [kind]: kept } = (config.parts ?? {}) as Record<string, unknown>;
  if (kept === undefined) return undefined;
  const { name, from, integrity } = (kept ?? {}) as Record<string, unknown>;
  const texts = [name, from, integrity];
  if (texts.every((text) => typeof text === "string" && text.length <= TEXT_MAX)) {
    return kept as KeptComponent;
  }
  throw new TypeError(
    `Cannot ${doing} ${path}: its ${kind} must have a name, a module and a hash, received ${
      quoted(kept)
    }`,
  );
}
