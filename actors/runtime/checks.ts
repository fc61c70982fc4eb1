/**
 * What actors and systems are made with, checked at the door: plain JavaScript knows no types.
 *
 * @module
 */

import type { SpawnOptions } from "./context_api.ts";
import { kindOf } from "./messages.ts";
import type { SystemOptions } from "./system_api.ts";
import type { ActorSpec } from "./types.ts";

const PLACES: readonly unknown[] = ["local", "worker", "process"];

/**
 * Checks how an actor is to be made.
 *
 * @throws {TypeError} when something is of another kind than it must be.
 * @throws {RangeError} when something is out of its bounds.
 */
export function checkSpawn(spec: ActorSpec, options: SpawnOptions): void {
  if (!isRecord(options)) throw wrongKind("Cannot spawn", "its options", "a record", options);
  const { id, isolate = "local", memoryLimitMb, capacity, transfer = [] } = options;
  const cannot = `Cannot spawn "${String(id)}":`;
  if (typeof id !== "string" || id === "") {
    throw new RangeError(`${cannot} id must be a string of one character or more`);
  }
  if (!isRecord(spec)) throw wrongKind(cannot, "its spec", "a record", spec);
  if (!URL.canParse(spec.module)) {
    throw new TypeError(`${cannot} module must be an absolute URL, received ${spec.module}`);
  }
  if (typeof spec.export !== "string") throw wrongKind(cannot, "export", "a string", spec.export);
  if (!PLACES.includes(isolate)) {
    throw new RangeError(
      `${cannot} isolate must be local, worker or process, received ${String(isolate)}`,
    );
  }
  for (const [name, value] of Object.entries({ capacity, memoryLimitMb })) {
    if (value === undefined || Number.isSafeInteger(value) && value >= 1) continue;
    throw new RangeError(`${cannot} ${name} must be a positive integer, received ${String(value)}`);
  }
  if (memoryLimitMb !== undefined && isolate !== "process") {
    throw new TypeError(`${cannot} only a process must have a memoryLimitMb`);
  }
  if (!Array.isArray(transfer) || transfer.some((one) => !(one instanceof ArrayBuffer))) {
    throw new TypeError(`${cannot} transfer must be an array of ArrayBuffers`);
  }
}

/**
 * Checks what a factory made.
 *
 * @throws {TypeError} when it is no record of functions.
 */
export function checkHandlers(id: string, factory: string, handlers: unknown): void {
  const cannot = `Cannot make "${id}":`;
  if (!isRecord(handlers)) {
    throw wrongKind(cannot, `"${factory}"`, "a function that returns handlers", handlers);
  }
  for (const [type, handler] of Object.entries(handlers)) {
    if (typeof handler === "function") continue;
    throw wrongKind(cannot, `the handler of "${type}"`, "a function", handler);
  }
}

/**
 * Checks how a system is to be made.
 *
 * @throws {TypeError} when something is of another kind than it must be.
 * @throws {RangeError} when a number is out of its bounds.
 */
export function checkSystem(options: SystemOptions): void {
  const cannot = "Cannot create a system:";
  if (!isRecord(options)) throw wrongKind(cannot, "its options", "a record", options);
  const { seed = 0, stopGraceMs = 0, choose, now, onDeadLetter, observer } = options;
  if (!Number.isSafeInteger(seed)) {
    throw new RangeError(`${cannot} seed must be an integer, received ${String(seed)}`);
  }
  if (!Number.isFinite(stopGraceMs) || stopGraceMs < 0) {
    throw new RangeError(
      `${cannot} stopGraceMs must be a number of 0 or more, received ${String(stopGraceMs)}`,
    );
  }
  for (const [name, value] of Object.entries({ choose, now, onDeadLetter })) {
    if (value === undefined || typeof value === "function") continue;
    throw wrongKind(cannot, name, "a function", value);
  }
  if (observer === undefined) return;
  if (!isRecord(observer) || !URL.canParse(observer.module)) {
    throw new TypeError(`${cannot} observer must have the absolute URL of a module`);
  }
  if (typeof observer.export !== "string") {
    throw wrongKind(cannot, "the export of observer", "a string", observer.export);
  }
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function wrongKind(cannot: string, what: string, wanted: string, received: unknown): TypeError {
  return new TypeError(`${cannot} ${what} must be ${wanted}, received ${kindOf(received)}`);
}
