/**
 * Components of training, as modules export them: models, data, optimizers and supervisors.
 *
 * @module
 */

import * as v from "valibot";
import type {
  FileTokenizer,
  KnownTokens,
  PartialOptimizer,
  Tokenizer,
  TokenizerName,
} from "../../kernels/mod.ts";
import { assertInput } from "../../kernels/internal.ts";
import { checkData, objectOf } from "../options/file_schema.ts";
import type { ModelComponent, OpenedData } from "../options/model_definition.ts";
import { PROTOCOL_VERSION, type SupervisorMessage } from "../pipeline/protocol.ts";
import type { SupervisorInit } from "../pipeline/supervisor_state.ts";
import type { Message } from "../runtime/mod.ts";
import { inOneLine } from "../runtime/types.ts";
import { type ActorDefinition, checkDefinition, checkProtocol } from "../sandbox/define.ts";
import { openRegistry, type Registry } from "./registry.ts";
import type { Component, ComponentKind } from "./registry_file.ts";

/** Options with which a run opens its data. */
export interface DataOptions {
  /** B: samples of a micro-batch. */
  readonly microBatch: number;
  /** N: micro-batches of a step and a replica. */
  readonly microBatches: number;
  /** W: data-parallel replicas. A step has W·N micro-batches. */
  readonly replicas: number;
  /** Optimizer steps of the whole run. */
  readonly steps: number;
  /** Tokens of a sample. */
  readonly seq: number;
  /** Number of token ids, if given. */
  readonly vocab: number | undefined;
  /** Tokenizer of a text, if given. */
  readonly tokenizer: TokenizerName | Tokenizer | FileTokenizer | undefined;
  /** Seed of the order of the samples. */
  readonly seed: number;
  /** True if samples are documents, and micro-batches as long as they need. Default false. */
  readonly lengths?: boolean | undefined;
  /** True to group documents of similar lengths into micro-batches. Default false. */
  readonly groupByLength?: boolean | undefined;
  /** Tokens of each document of a file of tokens, if given. */
  readonly documents?: Uint32Array | undefined;
  /** True if the model reads a source and writes a target: {@linkcode ModelComponent.readsPairs}. */
  readonly arePairs?: boolean | undefined;
  /**
   * File given by the user: its path for messages, its content, which is read on access, and, for a
   * file that may exceed memory, arguments of `openTokenFile` and `openRanges`.
   */
  readonly file: {
    readonly path: string;
    readonly content: Uint8Array;
    readonly known?: KnownTokens | undefined;
  } | undefined;
  /** Receives a line about each download. */
  readonly announce: (line: string) => void;
}

/**
 * Data exported by a module as `data`, and named by a registry or the module's specifier:
 * `troupe train --data jsr:@you/data`.
 */
export interface DataComponent {
  /** Name: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Version, for readers. */
  readonly version: string;
  /** SHA-256 of its source in hexadecimal, if that is fixed. */
  readonly sha256?: string;
  /**
   * Opens the data for a run.
   *
   * @throws {RangeError} {@linkcode TypeError} when there is too little data for the options.
   */
  open(options: DataOptions): OpenedData | Promise<OpenedData>;
}

/**
 * Types a data component. A package that does not import Troupe can export the plain object.
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
export function defineData(component: DataComponent): DataComponent {
  return component;
}

/** Settings of the optimizer from the flags of `troupe train`. */
export interface OptimizerSettings {
  /** Decay rate of the first moment. */
  readonly beta1: number;
  /** Decay rate of the second moment. */
  readonly beta2: number;
  /** Momentum of SGD. */
  readonly momentum: number;
  /** Weight decay. */
  readonly weightDecay: number;
}

/** An optimizer exported by a module as `optimizer`: AdamW, SGD, Lion or Adafactor with its settings. */
export interface OptimizerComponent {
  /** Name: letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Version, for readers. */
  readonly version: string;
  /** Returns the optimizer and its settings; missing settings have their defaults. */
  options(settings: OptimizerSettings): PartialOptimizer;
}

/**
 * Types an optimizer component. A package that does not import Troupe can export the plain object.
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
export function defineOptimizer(component: OptimizerComponent): OptimizerComponent {
  return component;
}

/** Types of exports, by kind of component. */
export interface ComponentTypes {
  /** An actor. */
  readonly actor: ActorDefinition<unknown, Message>;
  /** A model. */
  readonly model: ModelComponent;
  /** Training data. */
  readonly data: DataComponent;
  /** An optimizer. */
  readonly optimizer: OptimizerComponent;
  /** The supervisor of a pipeline. */
  readonly supervisor: ActorDefinition<SupervisorInit, SupervisorMessage>;
}

/** A component whose module has not run yet. */
export interface FoundComponent<K extends ComponentKind = ComponentKind> extends Component {
  /** Kind. */
  readonly kind: K;
  /** Current hash of its modules; absent for built-in components. */
  readonly integrity?: string;
}

/** A component with its imported module. */
export interface ImportedComponent<K extends ComponentKind = ComponentKind>
  extends FoundComponent<K> {
  /** Export of the module. */
  readonly value: ComponentTypes[K];
}

/**
 * Finds a component, and hashes its modules without running them.
 *
 * @throws {RangeError} (as a rejection) when the name is unknown, or the hash differs from the
 * registry's.
 * @throws {TypeError} (as a rejection) when the specifier is invalid, or a module cannot be loaded.
 */
export async function findComponent<K extends ComponentKind>(
  kind: K,
  nameOrSpecifier: string,
  registry: Registry = openRegistry(),
): Promise<FoundComponent<K>> {
  const found = { ...registry.find(kind, nameOrSpecifier), kind };
  if (found.isBuiltIn) return found;
  const { integrity, isIntact } = await registry.verify(found);
  const { name, from, integrity: known } = found;
  const must = `the modules of ${from} must have the hash in the registry, ${known}`;
  const received = `${integrity}; if you trust them, add them again with --replace`;
  assertInput(isIntact, `use ${name} as ${kind}`, must, received);
  return { ...found, integrity };
}

/**
 * Imports the module of a component and checks its export. It runs with the program's permissions.
 *
 * Deno resolves its imports with the lock file of the program. If it imports a range of versions,
 * the version may differ from the hashed one.
 *
 * @throws {TypeError} (as a rejection) when the module fails, or does not export the component.
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

const TEXT = v.string("a string");

/** A component with a method; its name is used in paths and reports. */
const withMethod = (method: string) => (cannot: string, value: unknown) =>
  checkData(
    cannot,
    objectOf({
      name: v.pipe(TEXT, v.regex(/^\w[\w.-]{0,63}$/, "letters, digits, _, . and -")),
      version: TEXT,
      [method]: v.function("a function"),
    }),
    value,
  );

const CHECKS: Readonly<Record<ComponentKind, (cannot: string, value: unknown) => unknown>> = {
  actor: checkDefinition,
  supervisor: checkSupervisor,
  model: withMethod("build"),
  data: withMethod("open"),
  optimizer: withMethod("options"),
};

function checkSupervisor(cannot: string, value: unknown): void {
  checkDefinition(cannot, value);
  checkProtocol(cannot, PROTOCOL_VERSION, value.protocol);
}
