/**
 * The root isolate: the top of the tree of actors, in whatever world it is put.
 *
 * @module
 */

import { createActor, keyOf, SYSTEM_SERIAL } from "./actor/actor.ts";
import { ask } from "./actor/asks.ts";
import { deliver } from "./isolate/deliver.ts";
import { ActorFailedError, type DeadLetter, describeFailure, type Failure } from "./failure.ts";
import { isolateGone } from "./isolate/gone.ts";
import { createIsolate, type Environment, type Isolate } from "./isolate/isolate.ts";
import { openEnding } from "./ending.ts";
import { sendMessage } from "./isolate/sending.ts";
import { FIRST_SERIAL, spawn } from "./isolate/spawning.ts";
import { run } from "./isolate/steps.ts";
import type { AskCall } from "./context_api.ts";
import { MAX_DEAD_LETTERS, type System } from "./system_api.ts";
import type { Root, RootTransport } from "./transports/transport.ts";
import type { ActorRef, Message } from "./types.ts";
import { watch } from "./actor/watches.ts";

/** The world of a system: its clock, its order, its pace and its other isolates. */
export interface World extends
  Pick<
    Environment,
    | "system"
    | "seed"
    | "clock"
    | "choose"
    | "offers"
    | "observer"
    | "load"
    | "carry"
    | "breathe"
    | "stopGraceMs"
  > {
  /** The loop that handles messages. Default: {@linkcode run}. */
  readonly run?: (isolate: Isolate) => Promise<void>;
  /** Gets the isolate before anything happens in it. */
  readonly attach?: (isolate: Isolate) => void;
  /** Called at once when a failure reaches the top, before `failed` rejects. */
  readonly onFailure?: (failure: Failure) => void;
  /** Makes the way to other isolates. Absent: every actor lives in this one. */
  readonly connect?: (root: Root) => RootTransport;
  readonly onDeadLetter?: ((letter: DeadLetter) => void) | undefined;
}

/** Makes a system in a world. */
export function openSystem(world: World): System {
  const { system: token, seed, clock, stopGraceMs } = world;
  const deadLetters: DeadLetter[] = [];
  const failed = Promise.withResolvers<never>();
  const emptied = Promise.withResolvers<void>();
  const onDeadLetter = (letter: DeadLetter) => {
    deadLetters.push(letter);
    if (deadLetters.length > MAX_DEAD_LETTERS) deadLetters.shift();
    guard(`dead letter ${letter.type}`, () => world.onDeadLetter?.(letter));
  };
  const onFailure = (failure: Failure) => {
    world.onFailure?.(failure);
    failed.reject(new ActorFailedError(failure));
  };
  /** Lets what the owner gave throw without harm to the runtime. */
  const guard = (handling: string, call: () => void) => {
    try {
      call();
    } catch (error) {
      onFailure(describeFailure("system", "throw", error, handling));
    }
  };
  const transport = world.connect?.({
    system: token,
    seed,
    stopGraceMs,
    observer: world.observer && "module" in world.observer ? world.observer : undefined,
    onDeadLetter,
    deliver: (frame) => isolate.deliver(frame),
    isolateGone: (number, reason) => isolateGone(isolate, number, reason),
  });
  const env: Environment = {
    system: token,
    seed,
    clock,
    stopGraceMs,
    choose: world.choose,
    offers: world.offers,
    observer: world.observer,
    load: world.load,
    carry: world.carry,
    breathe: world.breathe,
    onDeadLetter,
    ...(transport ? { transport } : {}),
    onFailure,
    onEmpty: () => emptied.resolve(),
  };
  const isolate = createIsolate(0, env, deliver, world.run ?? run);
  const address = { id: "system", isolate: 0, serial: SYSTEM_SERIAL };
  const self = createActor(
    { ...address, ...token !== undefined && { system: token } },
    undefined,
    1,
  );
  self.state = "ready";
  isolate.actors.set(SYSTEM_SERIAL, self);
  isolate.ids.set(self.ref.id, keyOf(self.ref));
  isolate.nextSerial = FIRST_SERIAL;
  world.attach?.(isolate);

  const end = openEnding({
    isolate,
    self,
    emptied: emptied.promise,
    giveUp: emptied.resolve,
    close: async () => await transport?.close(),
  });
  let stirred = 0;
  const activity = () => {
    if (isolate.pulse.stirs()) stirred++;
    return stirred + (transport?.activity() ?? 0);
  };
  const system: System = {
    spawn: (spec, init, options) => spawn(isolate, self, spec, init, options),
    send: (to, message, options) => sendMessage(isolate, self.ref, to, message, options),
    ask:
      ((to: ActorRef, message: Message, options?: object) =>
        ask(isolate, self.ref, undefined, to, message, options)) as AskCall,
    watch: (ref, onDown) =>
      watch(isolate, ref, undefined, (down) => guard(`end of ${ref.id}`, () => onDown(down))),
    deadLetters,
    ...clock.advance ? {} : { activity },
    failed: failed.promise,
    stop: end,
    [Symbol.asyncDispose]: () => system.stop(),
  };
  return system;
}
