/**
 * The context that an actor gets.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { allReduce } from "./all_reduce.ts";
import { ask } from "./asks.ts";
import { outside } from "./outside.ts";
import type { AskCall, AskOptions, Context, SpawnOptions } from "../context_api.ts";
import { describeFailure } from "../failure.ts";
import type { Isolate } from "../isolate/isolate.ts";
import type { Effect } from "../observer.ts";
import { fail, stop, tell } from "./lifecycle.ts";
import { substream } from "../world/random.ts";
import { sendMessage } from "../isolate/sending.ts";
import { refuse } from "../isolate/steps.ts";
import { snapshot } from "../snapshot.ts";
import { deferReply } from "./replies.ts";
import { stopOther } from "./stopping.ts";
import { startTimer } from "./timers.ts";
import type { ActorRef, ActorSpec, Message } from "../types.ts";
import { watch } from "./watches.ts";

/** Makes a child; passed in, as what spawns needs contexts. */
type Spawn = <T extends Message>(
  isolate: Isolate,
  parent: Actor,
  spec: ActorSpec,
  init: unknown,
  options: SpawnOptions,
) => ActorRef<T>;

/** The {@linkcode Context} of an actor. */
export function createContext<M extends Message>(
  isolate: Isolate,
  actor: Actor,
  spawn: Spawn,
): Context<M> {
  const { ref } = actor;
  const did = (kind: Effect["kind"], value?: unknown, to?: ActorRef) =>
    isolate.observer?.did(actor, { kind, value, to });
  return {
    self: ref as ActorRef<Message> as ActorRef<M>,
    send(to, message, options) {
      did("send", message, to);
      sendMessage(isolate, ref, to, message, options);
    },
    ask: ((to: ActorRef, message: Message, options?: AskOptions) => {
      did("ask", message, to);
      return ask(isolate, ref, actor, to, message, options);
    }) as AskCall,
    reply(value, options) {
      if (actor.step?.envelope.replyTo) deferReply(isolate, actor)(value, options);
    },
    deferReply: () => deferReply(isolate, actor),
    refuse(why) {
      const { step } = actor;
      did("refuse", why);
      if (step && !step.envelope.run) return refuse(isolate, actor, step, why);
      throw new TypeError(`Cannot refuse: "${ref.id}" must be handling a message`);
    },
    spawn(spec, init, options) {
      did("spawn", { made: spec.export, init, id: options.id });
      const child = spawn<Message>(isolate, actor, spec, init, options);
      did("spawned", undefined, child);
      return child;
    },
    watch(to, as) {
      did("watch", undefined, to);
      watch(isolate, to, actor, (down) =>
        tell(isolate, actor, `end of ${down.ref.id}`, () => {
          return { lane: "control", from: down.ref, message: snapshot(as(down)) };
        }));
    },
    stop(to, options) {
      did("stop", options, to);
      if (to) stopOther(isolate, actor, to, options);
      else stop(isolate, actor);
    },
    after(delayMs, message, key) {
      did("after", { delayMs, message, key });
      startTimer(isolate, actor, delayMs, message, key);
    },
    now() {
      const now = isolate.env.clock.now();
      did("now", now);
      return now;
    },
    random: (label) => draw(isolate, actor, label),
    doing: (text) => void (actor.doing = String(text)),
    busy: (run) => isolate.pulse.busy(run),
    outside(run) {
      did("outside");
      return outside(isolate, actor, run);
    },
    allReduce: (addend, as) => allReduce(isolate, actor, addend, as),
    expose: (read) => expose(isolate, actor, read),
    defer: (cleanup) => void actor.cleanups.push(cleanup),
  };
}

function expose(isolate: Isolate, actor: Actor, read: () => unknown): void {
  actor.expose = () => {
    try {
      return read();
    } catch (error) {
      // Whoever looks at the state is not to blame.
      fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, "expose"));
      return undefined;
    }
  };
}

function draw(isolate: Isolate, actor: Actor, label: string): number {
  let next = actor.streams.get(label);
  if (!next) {
    next = substream(isolate.env.seed, `${actor.ref.id}\0${label}`);
    actor.streams.set(label, next);
  }
  return next();
}
