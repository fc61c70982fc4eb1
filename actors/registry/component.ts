/**
 * Data whose micro-batches are made of those of other data.
 *
 * @module
 */

import type {
  AnyLayer,
  Batch,
  DeviceChoice,
  FileTokenizer,
  KnownTokens,
  Model,
  PartialOptimizer,
  Predictor,
  Tie,
  Tokenizer,
  TokenizerName,
} from "../../kernels/mod.ts";
import { type Batches, type Data, isIterable, isSource } from "../options/train_options.ts";
import { PROTOCOL_VERSION, type SupervisorMessage } from "../pipeline/protocol.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import type { Message } from "../runtime/mod.ts";
import { inOneLine, kindOf } from "../runtime/types.ts";
import { type ActorDefinition, checkDefinition } from "../sandbox/mod.ts";
import { openRegistry, type Registry } from "./registry.ts";
import type { Component, ComponentKind } from "./registry_file.ts";

/** How a run cuts its data, and what it says of it. */
export interface DataOptions {
  /** B: samples of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of a step and a replica. */
  readonly microBatches: number;
  /** W: data-parallel replicas. A step has W·N micro-batches. */
  readonly replicas: number;
  /** Steps of the whole run. */
  readonly steps: number;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, where that was given. */
  readonly vocab: number | undefined;
  /** What the tokens of a text are, where that was said. */
  readonly tokenizer: TokenizerName | Tokenizer | FileTokenizer | undefined;
  /** Of the order of the samples. */
  readonly seed: number;
  /**
   * A file that the user named: its path, to be shown, what it holds, read when it is asked for, and
   * of one that may be larger than memory what `openTokenFile` and `openRanges` want to know.
   */
  readonly file: {
    readonly path: string;
    readonly content: Uint8Array;
    readonly known?: KnownTokens | undefined;
  } | undefined;
  /** Told in words of what is fetched. */
  readonly announce: (line: string) => void;
}

/** Data that is open. */
export interface OpenedData {
  /**
   * Micro-batches in global order, from step 1: those of steps already done are skipped, unless they
   * have `from`, which begins anywhere.
   */
  readonly batches: Data;
  /** Micro-batches of so many samples that are never trained on. Default: nothing is held out. */
  heldOut?(microBatch: number): readonly Batch[];
  /** What a model may have to know: `vocab` of tokens, `inputs` and `classes` of samples. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** What turns text into its tokens and back. */
  readonly tokenizer?: Tokenizer | FileTokenizer;
}

/**
 * Data that a module exports by the name `data`, found by a name in a registry or by the module's
 * specifier: `troupe train --data jsr:@you/data`.
 */
export interface DataComponent {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** SHA-256 of what it reads, in hexadecimal, where that is always the same. */
  readonly sha256?: string;
  /**
   * Opens it for a run.
   *
   * @throws {RangeError} {@linkcode TypeError} when there is too little of it, or not what is asked for.
   */
  open(options: DataOptions): OpenedData | Promise<OpenedData>;
}

/**
 * Gives a data part its types. A package that does not want to import Troupe exports the same record
 * as it is.
 *
 * @example
 * ```ts
 * import { defineData } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * export const data = defineData({
 *   name: "signs",
 *   version: "1.0.0",
 *   open: ({ microBatch }) => ({
 *     sizes: { inputs: 1, classes: 2 },
 *     batches: function* () {
 *       for (let i = 0;; i++) {
 *         const features = new Float32Array(microBatch).fill(i % 2 ? 1 : -1);
 *         yield { features, labels: new Int32Array(microBatch).fill(i % 2) };
 *       }
 *     }(),
 *   }),
 * });
 * assert.equal(data.name, "signs");
 * ```
 */
export function defineData(part: DataComponent): DataComponent {
  return part;
}

/** What a model is built for: sizes as the flags of `troupe train` give them, and its data. */
export interface ModelOptions<Size extends string = string> {
  /** Blocks, or hidden layers. */
  readonly layers: number;
  /** Width of the layers. */
  readonly hidden: number;
  /** Attention heads. */
  readonly heads: number;
  /** Experts of a mixture, where that was given. */
  readonly experts?: number | undefined;
  /** Attention heads of keys and values, where that was given. */
  readonly keyValueHeads?: number | undefined;
  /** Width within a feed-forward network, where that was given. */
  readonly intermediate?: number | undefined;
  /** Base of the angles of rotary positions, where that was given. */
  readonly ropeTheta?: number | undefined;
  /** Added to the mean square in a norm, where that was given. */
  readonly normEpsilon?: number | undefined;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, where that was given. */
  readonly vocab: number | undefined;
  /** Whether the head's weight is that of the token embedding. */
  readonly tie: boolean;
  /** Layers that share the head, each with a slice of the vocabulary; 1 where not given. */
  readonly headSlices?: number | undefined;
  /** Share of the elements that dropout leaves out in training; 0 where not given. */
  readonly dropout?: number | undefined;
  /** Samples of a micro-batch. */
  readonly microBatch: number;
  /** Sizes that the data says of itself: all those that the part asks for, and maybe more. */
  readonly data: Readonly<Record<Size, number>>;
}

/** A model of a part, with what a checkpoint says of it and what it can show. */
export interface BuiltModel extends Model {
  /** What a checkpoint's `config.json` says of the model; `architecture` is its name by default. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** The same layers but that the last predicts: what {@linkcode openPredictor} takes. */
  readonly predicting?: readonly AnyLayer[];
  /** What its layers read of a micro-batch of the data, where that has other fields. */
  fieldsOf?(batch: Batch): Batch;
  /** The bytes of an ONNX file with trained weights, where the model is one of such a file. */
  onnx?(weights: ReadonlyMap<string, Float32Array>): Uint8Array;
  /** Says what trained weights can do, in words to print after a run. */
  show?(trained: Trained): Promise<string | undefined>;
}

/** A run that has ended, for those who show what was learnt. */
export interface Trained {
  /** The weights by name. */
  readonly weights: ReadonlyMap<string, Float32Array>;
  /** What computed them. */
  readonly device: DeviceChoice;
  /** What they were learnt from. */
  readonly data: OpenedData;
  /** The seed of the run. */
  readonly seed: number;
  /** Opens layers whose last one predicts, with the weights; closed by whoever called. */
  predict(layers: readonly AnyLayer[], ties?: readonly Tie[]): Promise<Predictor>;
}

/**
 * A model that a module exports by the name `model`, found by a name in a registry or by the
 * module's specifier: `troupe train --model jsr:@you/model`.
 *
 * @typeParam Size the sizes of its data that it must know: `vocab` of tokens, `inputs` and `classes`
 * of samples, or others.
 */
export interface ModelComponent<Size extends string = string> {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** The sizes of its data that it must know; data that does not say them is refused. */
  readonly sizes?: readonly Size[];
  /** The data that it learns from where none is named. Default: it must be named. */
  readonly data?: string;
  /**
   * Builds the model for micro-batches of `microBatch` samples.
   *
   * @throws {RangeError} when it cannot have such sizes.
   */
  build(options: ModelOptions<Size>): BuiltModel | Promise<BuiltModel>;
}

/**
 * Gives a model part its types. A package that does not want to import Troupe exports the same
 * record as it is.
 *
 * @example
 * ```ts
 * import { defineModel } from "@troupe/troupe/actors";
 * import { mlp } from "@troupe/troupe/kernels";
 * import assert from "node:assert/strict";
 *
 * export const model = defineModel({
 *   name: "shallow",
 *   version: "1.0.0",
 *   sizes: ["inputs", "classes"],
 *   data: "mnist",
 *   build: ({ hidden, microBatch, data: { inputs, classes } }) =>
 *     mlp({ inputs, hidden, layers: 1, classes }, microBatch),
 * });
 * assert.equal(model.data, "mnist");
 * ```
 */
export function defineModel<const Size extends string = never>(
  part: ModelComponent<Size>,
): ModelComponent<Size> {
  return part;
}

/** What the flags of `troupe train` say of the optimizer. */
export interface OptimizerSettings {
  /** Decay of the mean of gradients. */
  readonly beta1: number;
  /** Decay of the mean of their squares. */
  readonly beta2: number;
  /** Decay of the velocity. */
  readonly momentum: number;
  /** Weight decay. */
  readonly weightDecay: number;
}

/**
 * An optimizer that a module exports by the name `optimizer`: AdamW or SGD, with settings of its own.
 */
export interface OptimizerComponent {
  /** What it is called: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Its version, as people read it. */
  readonly version: string;
  /** The optimizer and its settings, as plain data; a setting that is left out has its default. */
  options(settings: OptimizerSettings): PartialOptimizer;
}

/**
 * Gives an optimizer part its types. A package that does not want to import Troupe exports the same
 * record as it is.
 *
 * @example
 * ```ts
 * import { defineOptimizer } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * export const optimizer = defineOptimizer({
 *   name: "plain",
 *   version: "1.0.0",
 *   options: ({ weightDecay }) => ({ kind: "sgd", momentum: 0, weightDecay }),
 * });
 * assert.equal(optimizer.name, "plain");
 * ```
 */
export function defineOptimizer(part: OptimizerComponent): OptimizerComponent {
  return part;
}

/** What a module exports, by the kind of part. */
export interface ComponentTypes {
  /** An actor. */
  readonly actor: ActorDefinition<unknown, Message>;
  /** What is trained. */
  readonly model: ModelComponent;
  /** What it learns from. */
  readonly data: DataComponent;
  /** How weights are stepped. */
  readonly optimizer: OptimizerComponent;
  /** The supervisor of a pipeline. */
  readonly supervisor: ActorDefinition<SupervisorInit, SupervisorMessage>;
}

/** A part that was found, and whose module was not run yet. */
export interface FoundComponent<K extends ComponentKind = ComponentKind> extends Component {
  /** What it is for. */
  readonly kind: K;
  /** The hash of its modules as they are now; absent for what comes with Troupe. */
  readonly integrity?: string;
}

/** A part whose module was imported. */
export interface ImportedComponent<K extends ComponentKind = ComponentKind>
  extends FoundComponent<K> {
  /** What its module exports. */
  readonly value: ComponentTypes[K];
}

/**
 * Finds a part, and takes the hash of its modules without running them.
 *
 * @throws {RangeError} (as a rejection) when nothing has that name, or its hash is another than the
 * registry's.
 * @throws {TypeError} (as a rejection) when a specifier is none, or its modules are not to be had.
 */
export async function findComponent<K extends ComponentKind>(
  kind: K,
  nameOrSpecifier: string,
  registry: Registry = openRegistry(),
): Promise<FoundComponent<K>> {
  const part = { ...registry.find(kind, nameOrSpecifier), kind };
  if (part.isBuiltIn) return part;
  const { integrity, isIntact } = await registry.verify(part);
  if (isIntact) return { ...part, integrity };
  throw new RangeError(
    `Cannot use ${part.name} as ${kind}: the modules of ${part.from} must have the hash that the registry notes, ${part.integrity}, received ${integrity}; if you trust them, add them again`,
  );
}

/**
 * Imports the module of a part and checks what it exports. It runs with the program's permissions.
 *
 * Deno resolves what it imports with the lock file of the program, and lets no program say another:
 * where a range of versions is imported, that may be another version than the one that was hashed.
 *
 * @throws {TypeError} (as a rejection) when it cannot be run, or does not export such a part.
 */
export async function importComponent<K extends ComponentKind>(
  found: FoundComponent<K>,
): Promise<ImportedComponent<K>> {
  const { kind, name, from, export: exported = kind } = found;
  const cannot = `Cannot use ${name} as ${kind}`;
  let module: Record<string, unknown>;
  try {
    module = await import(from);
  } catch (cause) {
    const why = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
    throw new TypeError(`${cannot}: ${from} must run, received ${inOneLine(why)}`, { cause });
  }
  const value = module[exported];
  if (value === undefined) {
    const others = Object.keys(module).join(", ") || "nothing";
    throw new TypeError(`${cannot}: ${from} must export "${exported}", received ${others}`);
  }
  CHECKS[kind](cannot, value);
  return { ...found, value: value as ComponentTypes[K] };
}

const CHECKS: Readonly<Record<ComponentKind, (cannot: string, value: unknown) => void>> = {
  actor: checkDefinition,
  supervisor: checkSupervisor,
  model: (cannot, value) => checkRecord(cannot, value, "build"),
  data: (cannot, value) => checkRecord(cannot, value, "open"),
  optimizer: (cannot, value) => checkRecord(cannot, value, "options"),
};

function checkSupervisor(cannot: string, value: unknown): void {
  checkDefinition(cannot, value);
  if (value.protocol === PROTOCOL_VERSION) return;
  throw new RangeError(
    `${cannot}: its protocol must be version ${PROTOCOL_VERSION}, received ${value.protocol}`,
  );
}

/** Names of parts become names of folders and lines of reports. */
const NAME = /^\w[\w.-]{0,63}$/;

function checkRecord(cannot: string, part: unknown, method: string): void {
  const wrong = (what: string, wanted: string, received: string) =>
    new TypeError(`${cannot}: ${what} must be ${wanted}, received ${received}`);
  if (typeof part !== "object" || part === null) throw wrong("it", "a record", kindOf(part));
  const { name, version, [method]: made } = part as Record<string, unknown>;
  if (typeof name !== "string" || !NAME.test(name)) {
    throw wrong("its name", "letters, digits, _, . and -", JSON.stringify(name) ?? "none");
  }
  if (typeof version !== "string") throw wrong("its version", "a string", kindOf(version));
  if (typeof made !== "function") throw wrong(method, "a function", kindOf(made));
}

/** What `made` makes of each micro-batch; begun anywhere where `data` can be. What is none stays. */
export function mapData(data: Data, made: (batch: Batch) => Batch): Data {
  if (data === undefined || !isSource(data)) return isIterable(data) ? mapped(data, made) : data;
  return {
    from: (microBatch, state) => mapped(data.from(microBatch, state), made),
    ...data.state && { state: () => data.state!() },
  };
}

async function* mapped(batches: Batches, made: (batch: Batch) => Batch): AsyncGenerator<Batch> {
  for await (const batch of batches) yield made(batch);
}
