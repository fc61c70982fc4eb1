/**
 * How an actor begins.
 *
 * @module
 */

import { type Actor, type AnyHandlers, createActor, keyOf } from "./actor.ts";
import { createContext } from "./context.ts";
import { MAILBOX_CAPACITY, type SpawnOptions } from "./context_api.ts";
import { type Isolate, schedule } from "./isolate.ts";
import { isCloneError } from "./sending.ts";
import { snapshot } from "./snapshot.ts";
import type { LaunchFrame, Place } from "./transports/wire.ts";
import type { ActorFactory, ActorRef, ActorSpec, Message } from "./types.ts";

/** Serial of the first actor of an isolate; 0 is the system itself. */
export const FIRST_SERIAL = 1;

/**
 * Most isolates that one isolate may start. The n-th that isolate p starts has the number
 * p · 65,536 + n, so numbers are unique although nobody hands them out.
 */
const MAX_ISOLATES = 65_535;

/** Makes a child of `parent`. See {@linkcode Context.spawn}. */
export function spawn<T extends Message>(
  isolate: Isolate,
  parent: Actor,
  { module, export: name }: ActorSpec,
  init: unknown,
  options: SpawnOptions,
): ActorRef<T> {
  const { id, capacity = MAILBOX_CAPACITY, transfer = [] } = options;
  check(isolate, parent, module, id, capacity);
  const { transport } = isolate.env, place = placeOf(options);
  const elsewhere = place.isolate === "local" ? undefined : transport;
  const ref: ActorRef<T> = elsewhere
    ? { id, isolate: nextIsolate(isolate, id), serial: FIRST_SERIAL }
    : { id, isolate: isolate.number, serial: isolate.nextSerial++ };
  const spec = { module, export: name };
  const frame: LaunchFrame = {
    kind: "launch",
    ref,
    parent: parent.ref,
    spec,
    init,
    capacity,
    place,
  };
  try {
    if (elsewhere) elsewhere.start(ref.isolate, frame, transfer);
    else isolate.deliver(snapshot(frame, transfer));
  } catch (error) {
    if (!isCloneError(error)) throw error;
    throw new TypeError(
      `Cannot spawn "${id}": init must be structured-cloneable, received ${error.message}`,
    );
  }
  isolate.ids.set(id, keyOf(ref));
  parent.children.set(keyOf(ref), { ref });
  return ref;
}

function check(isolate: Isolate, parent: Actor, module: string, id: string, capacity: number) {
  const cannot = `Cannot spawn "${id}":`;
  if (parent.state === "stopping") {
    throw new TypeError(`${cannot} "${parent.ref.id}" must not be stopping`);
  }
  if (typeof id !== "string" || id === "") {
    throw new RangeError(`${cannot} id must be a string of one character or more`);
  }
  if (isolate.ids.has(id)) {
    throw new RangeError(`${cannot} id must be unique, received that of a living actor`);
  }
  if (!URL.canParse(module)) {
    throw new TypeError(`${cannot} module must be an absolute URL, received ${module}`);
  }
  if (!Number.isSafeInteger(capacity) || capacity < 1) {
    throw new RangeError(`${cannot} capacity must be a positive integer, received ${capacity}`);
  }
}

function placeOf({ id, isolate = "local", memoryLimitMb }: SpawnOptions): Place {
  if (memoryLimitMb === undefined) return { isolate };
  if (isolate !== "process") {
    throw new TypeError(`Cannot spawn "${id}": only a process must have a memoryLimitMb`);
  }
  if (!Number.isSafeInteger(memoryLimitMb) || memoryLimitMb < 1) {
    throw new RangeError(
      `Cannot spawn "${id}": memoryLimitMb must be a positive integer, received ${memoryLimitMb}`,
    );
  }
  return { isolate, memoryLimitMb };
}

function nextIsolate(isolate: Isolate, id: string): number {
  const number = isolate.number * (MAX_ISOLATES + 1) + isolate.started + 1;
  if (isolate.started === MAX_ISOLATES || !Number.isSafeInteger(number)) {
    throw new RangeError(
      `Cannot spawn "${id}": an isolate must start at most ${MAX_ISOLATES} others, ` +
        `and isolates must nest at most 3 deep`,
    );
  }
  isolate.started++;
  return number;
}

/** Puts the actor of a launch frame into this isolate; its first step makes its state. */
export function launch(isolate: Isolate, frame: LaunchFrame): void {
  const { ref, parent, capacity } = frame;
  const actor = createActor(ref, parent, capacity);
  isolate.actors.set(ref.serial, actor);
  isolate.nextSerial = Math.max(isolate.nextSerial, ref.serial + 1);
  const message = { type: "init", self: ref, made: frame.spec.export, init: frame.init };
  schedule(isolate, actor, message, parent, () => start(isolate, actor, frame));
}

async function start(isolate: Isolate, actor: Actor, { spec, init }: LaunchFrame): Promise<void> {
  const load = isolate.env.load ?? ((module) => import(module));
  const exports = await isolate.pulse.busy(() => load(spec.module));
  const factory = exports[spec.export];
  if (typeof factory !== "function") {
    throw new TypeError(
      `Cannot make "${actor.ref.id}": ${spec.module} must export a function "${spec.export}", ` +
        `received ${typeof factory}`,
    );
  }
  const ctx = createContext<Message>(isolate, actor, spawn);
  const make = factory as ActorFactory<unknown, Message>;
  actor.handlers = await isolate.pulse.busy(() => make(ctx, init)) as AnyHandlers;
  if (actor.state === "starting") actor.state = "ready";
}
