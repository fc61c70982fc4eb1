/**
 * Creates a system of actors in real time: wall clock, oldest message first, Deno workers,
 * processes and the registered transports.
 *
 * @module
 */

import { checkSystem } from "../runtime/checks.ts";
import type { System, SystemOptions } from "../runtime/context.ts";
import { openTelemetry } from "../runtime/isolate.ts";
import { IsolateRegistry } from "../runtime/isolates.ts";
import { openSystem } from "../runtime/root.ts";
import { relaxedPace } from "../runtime/steps.ts";
import type { Transport } from "../runtime/transport.ts";
import { realClock } from "../runtime/world.ts";
import { PROCESS_TRANSPORT } from "./process.ts";
import { WORKER_TRANSPORT } from "./worker.ts";

/** Returns the built-in transports (Deno workers and processes) and the registered ones. */
const transportsOf = (
  registered: Transport | readonly Transport[] = [],
): readonly Transport[] => [WORKER_TRANSPORT, PROCESS_TRANSPORT].concat(registered);

/** Options that decide which transports a run knows. */
export interface PlaceOptions {
  readonly system?: System | undefined;
  readonly transport?: Transport | readonly Transport[] | undefined;
}

/** The transports that a run can name: those of its system, or those of a new system. */
export function knownTransports({ system, transport }: PlaceOptions): readonly Transport[] {
  const own = system?.transports ?? [];
  // In a simulated system every place is local, regardless of its name.
  return own.length > 0 ? own : transportsOf(transport);
}

/** Default of {@linkcode SystemOptions.stopGraceMs}. */
const STOP_GRACE_MS = 5000;

/**
 * Creates a system of actors. It uses no resources until actors are spawned, and keeps the program
 * alive only while workers live or messages wait.
 *
 * @throws {TypeError} or {@linkcode RangeError} when an option is invalid.
 *
 * @example
 * ```ts
 * import { createSystem } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * // Usually `import.meta.url` and a factory in the same module.
 * const module = `data:text/javascript,export const counter = (ctx, start) => {
 *   let count = start;
 *   return { Add({ by }) { count += by; }, Read() { ctx.reply(count); } };
 * }`;
 * type Counter = { type: "Add"; by: number } | { type: "Read" };
 *
 * await using system = createSystem();
 * const counter = system.spawn<number, Counter>(
 *   { module, export: "counter" },
 *   40,
 *   { id: "counter", isolate: "worker" },
 * );
 * system.send(counter, { type: "Add", by: 2 });
 * assert.equal(await system.ask(counter, { type: "Read" }), 42);
 * ```
 */
export function createSystem(options: SystemOptions = {}): System {
  checkSystem(options);
  const transports = transportsOf(options.transport);
  const { seed = 0, stopGraceMs = STOP_GRACE_MS, choose, now, observer, onDeadLetter } = options;
  return openSystem({
    system: crypto.getRandomValues(new Uint32Array(1))[0]!,
    seed,
    stopGraceMs,
    choose,
    observer,
    onDeadLetter,
    transports,
    clock: realClock(now),
    telemetry: openTelemetry,
    breathe: relaxedPace(),
    connect: (root) => new IsolateRegistry(root, transports),
  });
}
