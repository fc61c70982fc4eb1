/**
 * Checks the options of actors and systems at run time, for callers in plain JavaScript.
 *
 * @module
 */

import type { SpawnOptions, Subscription, SystemOptions } from "./context.ts";
import type { Transport } from "./transport.ts";
import { type ActorSpec, assertInput, kindOf } from "./types.ts";
import type { PlaceKind } from "./wire.ts";

/** Kinds of isolates that every system has. */
const BUILT_IN: readonly PlaceKind[] = [
  { name: "worker", limitsMemory: false },
  { name: "process", limitsMemory: true },
];

/** Kinds of isolates without transports, as in a simulation: all kinds are accepted. */
const PLACES: readonly PlaceKind[] = [...BUILT_IN, { name: "mpi", limitsMemory: false }];

/**
 * Checks the spec and options of a new actor.
 *
 * @param places kinds of isolates that can host it, besides its parent's isolate.
 * @throws {TypeError} if a value has the wrong type.
 * @throws {RangeError} if a value is out of range.
 */
export function checkSpawn(
  spec: ActorSpec,
  options: SpawnOptions,
  places: readonly PlaceKind[] = PLACES,
): void {
  assertKind(isRecord(options), "Cannot spawn its options must be a record", options);
  const { id, memoryLimitMb, capacity, transfer = [] } = options;
  const cannot = `Cannot spawn "${String(id)}":`;
  if (typeof id !== "string" || id === "") {
    throw new RangeError(`${cannot} id must be a string of one character or more`);
  }
  assertKind(isRecord(spec), `${cannot} its spec must be a record`, spec);
  const { module, export: name } = spec, { isolate = "local" } = options;
  const isURL = URL.canParse(module);
  assertInput(isURL, `${cannot} module must be an absolute URL`, module, TypeError);
  assertKind(typeof name === "string", `${cannot} export must be a string`, name);
  const place = places.find(({ name }) => name === isolate);
  const known = listed(["local", ...places.map(({ name }) => name)]);
  const isKnown = place !== undefined || isolate === "local";
  assertInput(isKnown, `${cannot} isolate must be ${known}`, isolate);
  for (const [name, value = 1] of Object.entries({ capacity, memoryLimitMb })) {
    const isCount = Number.isSafeInteger(value) && value >= 1;
    assertInput(isCount, `${cannot} ${name} must be a positive integer`, value);
  }
  if (memoryLimitMb !== undefined && !place?.limitsMemory) {
    const able = listed(places.filter((one) => one.limitsMemory).map(({ name }) => name));
    throw new TypeError(`${cannot} only a ${able} must have a memoryLimitMb`);
  }
  if (!Array.isArray(transfer) || transfer.some((one) => !(one instanceof ArrayBuffer))) {
    throw new TypeError(`${cannot} transfer must be an array of ArrayBuffers`);
  }
}

/**
 * Checks the handlers returned by a factory.
 *
 * @throws {TypeError} if they are not a record of functions.
 */
export function checkHandlers(
  id: string,
  factory: string,
  handlers: unknown,
): asserts handlers is object {
  const cannot = `Cannot make "${id}":`;
  const must = `${cannot} "${factory}" must be a function that returns handlers`;
  assertKind(isRecord(handlers), must, handlers);
  // Other members of a class instance are its state.
  for (const [type, handler] of isPlain(handlers) ? Object.entries(handlers) : []) {
    const isFunction = typeof handler === "function";
    assertKind(isFunction, `${cannot} the handler of "${type}" must be a function`, handler);
  }
}

/**
 * Checks the options of a system.
 *
 * @throws {TypeError} if a value has the wrong type.
 * @throws {RangeError} if a value is out of range.
 */
export function checkSystem(options: SystemOptions): void {
  const cannot = "Cannot create a system:";
  assertKind(isRecord(options), `${cannot} its options must be a record`, options);
  const { seed = 0, stopGraceMs = 0, choose, now, onDeadLetter, observer } = options;
  assertInput(Number.isSafeInteger(seed), `${cannot} seed must be an integer`, seed);
  const isGrace = Number.isFinite(stopGraceMs) && stopGraceMs >= 0;
  assertInput(isGrace, `${cannot} stopGraceMs must be a number of 0 or more`, stopGraceMs);
  for (const [name, value] of Object.entries({ choose, now, onDeadLetter })) {
    const isFunction = value === undefined || typeof value === "function";
    assertKind(isFunction, `${cannot} ${name} must be a function`, value);
  }
  checkTransports(cannot, options.transport ?? []);
  if (observer === undefined) return;
  if (!isRecord(observer) || !URL.canParse(observer.module)) {
    throw new TypeError(`${cannot} observer must have the absolute URL of a module`);
  }
  const isName = typeof observer.export === "string";
  assertKind(isName, `${cannot} the export of observer must be a string`, observer.export);
}

/**
 * Checks the options of a subscriber.
 *
 * @throws {TypeError} if the listener is not a function.
 * @throws {RangeError} if `slowStepMs` is out of range.
 */
export function checkSubscription(listener: unknown, { slowStepMs = 0 }: Subscription = {}): void {
  const cannot = "Cannot subscribe:";
  assertKind(typeof listener === "function", `${cannot} the listener must be a function`, listener);
  const isLimit = Number.isFinite(slowStepMs) && slowStepMs >= 0;
  assertInput(isLimit, `${cannot} slowStepMs must be a number of 0 or more`, slowStepMs);
}

/** Reserved names of transports. */
const TAKEN: readonly string[] = ["local", ...BUILT_IN.map(({ name }) => name)];

/**
 * Checks transports.
 *
 * @throws {TypeError} if a value is not a transport.
 * @throws {RangeError} if a name is empty or already used.
 */
export function checkTransports(cannot: string, given: Transport | readonly Transport[]): void {
  const names = [...TAKEN];
  for (const transport of [given].flat() as readonly Transport[]) {
    const isTransport = isRecord(transport) && typeof transport.open === "function";
    const must = `${cannot} transport must be one, or several, with a function open`;
    assertKind(isTransport, must, transport);
    const { name } = transport;
    const isUnused = typeof name === "string" && name !== "" && !names.includes(name);
    assertInput(isUnused, `${cannot} the name of a transport must be unused`, name);
    names.push(name);
  }
}

/** Joins names with commas and "or". */
function listed(names: readonly string[]): string {
  return [names.slice(0, -1).join(", "), names.at(-1)].filter(Boolean).join(" or ");
}

/** Returns true if an object is a plain record, not an instance of a class. */
export function isPlain(object: object): boolean {
  const prototype = Object.getPrototypeOf(object);
  return prototype === Object.prototype || prototype === null;
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** Throws a TypeError with the type of a value unless a condition holds. */
function assertKind(holds: boolean, must: string, received: unknown): asserts holds {
  assertInput(holds, must, kindOf(received), TypeError);
}
