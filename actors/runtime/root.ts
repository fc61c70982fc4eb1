/**
 * The root isolate: the top of the tree of actors, in whatever world it is put.
 *
 * @module
 */

import { Actor, keyOf, SYSTEM_SERIAL } from "./actor/actor.ts";
import { ask } from "./actor/asks.ts";
import { deliver } from "./isolate/deliver.ts";
import type { DeadLetter, Failure } from "./failure.ts";
import { isolateGone } from "./isolate/gone.ts";
import { type Environment, Isolate } from "./isolate/isolate.ts";
import { openEnding } from "./ending.ts";
import { sendMessage } from "./isolate/sending.ts";
import { FIRST_SERIAL, spawn } from "./isolate/spawning.ts";
import { run } from "./isolate/steps.ts";
import { subscribe } from "./isolate/subscription.ts";
import type { AskCall } from "./context_api.ts";
import { Reports } from "./reports.ts";
import type { System } from "./system_api.ts";
import type { IsolateRegistry, Root } from "./transports/registry.ts";
import type { Transport } from "./transports/transport.ts";
import type { ActorRef, Message } from "./types.ts";
import { watch } from "./actor/watches.ts";

/** The world of a system: its clock, its order, its pace and its other isolates. */
export interface World
  extends Omit<Environment, "network" | "places" | "collectives" | "pulse" | `on${string}`> {
  /** The loop that handles messages. Default: {@linkcode run}. */
  readonly run?: (isolate: Isolate) => Promise<void>;
  /** Gets the isolate before anything happens in it. */
  readonly attach?: (isolate: Isolate) => void;
  /** Called at once when a failure reaches the top, before `failed` rejects. */
  readonly onFailure?: (failure: Failure) => void;
  /** What the other isolates are reached by. Default: none. */
  readonly transports?: readonly Transport[];
  /** Makes the way to other isolates. Absent: every actor lives in this one. */
  readonly connect?: (root: Root) => IsolateRegistry;
  readonly onDeadLetter?: ((letter: DeadLetter) => void) | undefined;
}

/** Makes a system in a world. */
export function openSystem(world: World): System {
  const { system: token, seed, clock, stopGraceMs, transports } = world;
  const reports = new Reports(world);
  const emptied = Promise.withResolvers<void>();
  const registry = world.connect?.({
    system: token,
    seed,
    stopGraceMs,
    observer: world.observer && "module" in world.observer ? world.observer : undefined,
    onDeadLetter: reports.onDeadLetter,
    deliver: (frame) => isolate.deliver(frame),
    isolateGone: (number, reason) => isolateGone(isolate, number, reason),
  });
  const env: Environment = {
    ...world,
    ...registry && { network: registry },
    ...transports && { places: transports },
    onDeadLetter: reports.onDeadLetter,
    onEvent: reports.onEvent,
    onFailure: reports.onFailure,
    onEmpty: () => emptied.resolve(),
  };
  const isolate = new Isolate(0, env, deliver, world.run ?? run);
  const self = addTop(isolate);
  world.attach?.(isolate);
  const system: System = {
    spawn: (spec, init, options) => spawn(isolate, self, spec, init, options),
    send: (to, message, options) => sendMessage(isolate, self.ref, to, message, options),
    ask:
      ((to: ActorRef, message: Message, options?: object) =>
        ask(isolate, self.ref, undefined, to, message, options)) as AskCall,
    watch: (ref, onDown) =>
      watch(isolate, ref, undefined, (down) => {
        reports.guard(`end of ${ref.id}`, () => onDown(down));
      }),
    transports: transports ?? [],
    deadLetters: reports.deadLetters,
    subscribe: (listener, options) =>
      reports.subscribe(listener, options, (wanted) => subscribe(isolate, wanted)),
    ...clock.advance ? {} : { activity: activityOf(isolate, registry) },
    failed: reports.failed,
    stop: openEnding(isolate, self, emptied, async () => await registry?.close()),
    [Symbol.asyncDispose]: () => system.stop(),
  };
  return system;
}

/** Makes the top of the tree: the system as an actor. */
function addTop(isolate: Isolate): Actor {
  const { system } = isolate.env;
  const address = { id: "system", isolate: isolate.number, serial: SYSTEM_SERIAL };
  const top = new Actor({ ...address, ...system !== undefined && { system } }, undefined, 1);
  top.state = "ready";
  isolate.actors.set(SYSTEM_SERIAL, top);
  isolate.ids.set(top.ref.id, keyOf(top.ref));
  isolate.nextSerial = FIRST_SERIAL;
  return top;
}

/** See {@linkcode System.activity}. */
function activityOf(isolate: Isolate, registry: IsolateRegistry | undefined): () => number {
  let stirred = 0;
  return () => {
    if (isolate.pulse.stirs()) stirred++;
    return stirred + (registry?.activity() ?? 0);
  };
}
