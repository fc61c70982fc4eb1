/**
 * The module of a part: found by name or specifier, hashed before its first line runs, imported, and
 * checked.
 *
 * @module
 */

import { kindOf } from "../runtime/messages.ts";
import { inOneLine } from "../runtime/world/escape.ts";
import { openRegistry, type Part, type PartKind, type Registry } from "../registry/mod.ts";
import type { Message } from "../runtime/mod.ts";
import { type ActorDefinition, checkDefinition } from "../sandbox/mod.ts";
import { PROTOCOL_VERSION, type SupervisorMessage } from "../pipeline/protocol.ts";
import type { SupervisorInit } from "../pipeline/supervisor/supervisor_init.ts";
import type { DataPart } from "./data_part.ts";
import type { ModelPart } from "./model_part.ts";
import type { OptimizerPart } from "./optimizer_part.ts";

/** What a module exports, by the kind of part. */
export interface PartTypes {
  /** An actor. */
  readonly actor: ActorDefinition<unknown, Message>;
  /** What is trained. */
  readonly model: ModelPart;
  /** What it learns from. */
  readonly data: DataPart;
  /** How weights are stepped. */
  readonly optimizer: OptimizerPart;
  /** The supervisor of a pipeline. */
  readonly supervisor: ActorDefinition<SupervisorInit, SupervisorMessage>;
}

/** A part that was found, and whose module was not run yet. */
export interface FoundPart<K extends PartKind = PartKind> extends Part {
  /** What it is for. */
  readonly kind: K;
  /** The hash of its modules as they are now; absent for what comes with Troupe. */
  readonly integrity?: string;
}

/** A part whose module was imported. */
export interface ImportedPart<K extends PartKind = PartKind> extends FoundPart<K> {
  /** What its module exports. */
  readonly value: PartTypes[K];
}

/**
 * Finds a part, and takes the hash of its modules without running them.
 *
 * @throws {RangeError} (as a rejection) when nothing has that name, or its hash is another than the
 * registry's.
 * @throws {TypeError} (as a rejection) when a specifier is none, or its modules are not to be had.
 */
export async function findPart<K extends PartKind>(
  kind: K,
  nameOrSpecifier: string,
  registry: Registry = openRegistry(),
): Promise<FoundPart<K>> {
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
export async function importPart<K extends PartKind>(
  found: FoundPart<K>,
): Promise<ImportedPart<K>> {
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
  return { ...found, value: value as PartTypes[K] };
}

const CHECKS: Readonly<Record<PartKind, (cannot: string, value: unknown) => void>> = {
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
