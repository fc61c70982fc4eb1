/**
 * How an actor begins.
 *
 * @module
 */

import { Actor, keyOf } from "../actor/actor.ts";
import { handlersOf } from "../actor/methods.ts";
import { checkSpawn } from "../checks.ts";
import { createContext } from "../actor/context.ts";
import { MAILBOX_CAPACITY, type SpawnOptions } from "../context_api.ts";
import { type Isolate, schedule } from "./isolate.ts";
import { tellWanted } from "./subscription.ts";
import { isCloneError, snapshot } from "../snapshot.ts";
import type { LaunchFrame } from "../transports/wire.ts";
import type { ActorFactory } from "../handlers.ts";
import type { ActorRef, ActorSpec, Message } from "../types.ts";

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
  spec: ActorSpec,
  init: unknown,
  options: SpawnOptions,
): ActorRef<T> {
  checkSpawn(spec, options, isolate.env.places);
  const { module, export: name, argument } = spec;
  const { id, isolate: place = "local", memoryLimitMb, capacity = MAILBOX_CAPACITY } = options;
  const { transfer = [] } = options, cannot = `Cannot spawn "${id}":`;
  if (parent.state === "stopping") {
    throw new TypeError(`${cannot} "${parent.ref.id}" must not be stopping`);
  }
  if (isolate.ids.has(id)) {
    throw new RangeError(`${cannot} id must be unique, received that of a living actor`);
  }
  const { network, system } = isolate.env, elsewhere = place === "local" ? undefined : network;
  const ref: ActorRef<T> = {
    id,
    ...elsewhere
      ? { isolate: nextIsolate(isolate, cannot), serial: FIRST_SERIAL }
      : { isolate: isolate.number, serial: isolate.nextSerial++ },
    ...system !== undefined && { system },
  };
  const frame: LaunchFrame = {
    kind: "launch",
    ref,
    parent: parent.ref,
    spec: { module, export: name, argument },
    init,
    capacity,
    place: { isolate: place, ...memoryLimitMb !== undefined && { memoryLimitMb } },
  };
  try {
    if (elsewhere) elsewhere.start(ref.isolate, frame, transfer);
    else isolate.deliver(snapshot(frame, transfer));
  } catch (error) {
    if (!isCloneError(error)) throw error;
    throw new TypeError(`${cannot} init must be structured-cloneable, received ${error.message}`);
  }
  if (elsewhere) tellWanted(isolate, ref.isolate);
  isolate.ids.set(id, keyOf(ref));
  parent.children.set(keyOf(ref), { ref });
  return ref;
}

function nextIsolate(isolate: Isolate, cannot: string): number {
  const number = isolate.number * (MAX_ISOLATES + 1) + isolate.started + 1;
  if (isolate.started === MAX_ISOLATES || !Number.isSafeInteger(number)) {
    throw new RangeError(
      `${cannot} an isolate must start at most ${MAX_ISOLATES} others, ` +
        "and isolates must nest at most 3 deep",
    );
  }
  isolate.started++;
  return number;
}

/** Who starts the isolate with this number, if there ever is one. */
export function starterOf(number: number): number {
  return Math.floor(number / (MAX_ISOLATES + 1));
}

/** Puts the actor of a launch frame into this isolate; its first step makes its state. */
export function launch(isolate: Isolate, frame: LaunchFrame): void {
  const { ref, parent, capacity } = frame;
  const actor = new Actor(ref, parent, capacity);
  isolate.actors.set(ref.serial, actor);
  isolate.nextSerial = Math.max(isolate.nextSerial, ref.serial + 1);
  const { spec: { export: made, argument }, init } = frame;
  const more = argument === undefined ? {} : { argument };
  const message = { type: "init", self: ref, made, init, ...more };
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
  const made = await isolate.pulse.busy(() => make(ctx, init, spec.argument));
  actor.handlers = handlersOf(actor.ref.id, spec.export, made);
  if (actor.state === "starting") actor.state = "ready";
}
