/**
 * The context that an actor gets.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { answer, ask } from "./asks.ts";
import type { AskOptions, Context, Reply, SpawnOptions } from "../context_api.ts";
import { describeFailure, type Down } from "../failure.ts";
import { enqueue, type Isolate } from "../isolate/isolate.ts";
import { fail, stop } from "./lifecycle.ts";
import type { ReplyTo } from "../mailbox/mailbox.ts";
import { assertMessage } from "../messages.ts";
import { substream } from "../world/random.ts";
import { sendMessage } from "../isolate/sending.ts";
import { snapshot } from "../snapshot.ts";
import { stopOther } from "./stopping.ts";
import { cancelTimer, startTimer } from "./timers.ts";
import type { ActorRef, ActorSpec, Message } from "../types.ts";
import { unwatch, watch } from "./watches.ts";

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
  const ref: ActorRef<M> = actor.ref as ActorRef<Message>;
  const { observer } = isolate;
  return {
    self: ref,
    send(to, message, options) {
      observer?.did(actor, { kind: "send", to, value: message });
      sendMessage(isolate, ref, to, message, options);
    },
    ask<T extends Message, R>(to: ActorRef<T>, message: T, options?: AskOptions) {
      observer?.did(actor, { kind: "ask", to, value: message });
      return ask(isolate, ref, actor, to, message, options) as Promise<R>;
    },
    reply(value, options) {
      if (actor.step?.envelope.replyTo) deferReply(isolate, actor)(value, options);
    },
    deferReply: () => deferReply(isolate, actor),
    spawn(spec, init, options) {
      observer?.did(actor, { kind: "spawn", value: { made: spec.export, init, id: options.id } });
      const child = spawn<Message>(isolate, actor, spec, init, options);
      observer?.did(actor, { kind: "spawned", to: child });
      return child;
    },
    watch(to, as) {
      observer?.did(actor, { kind: "watch", to });
      watch(isolate, to, actor, (down) => tell(isolate, actor, down, as));
    },
    unwatch(to) {
      observer?.did(actor, { kind: "unwatch", to });
      unwatch(isolate, to, actor);
    },
    after(delayMs, message, key) {
      observer?.did(actor, { kind: "after", value: { delayMs, message, key } });
      startTimer(isolate, actor, delayMs, message, key);
    },
    cancel(key) {
      observer?.did(actor, { kind: "cancel", value: key });
      cancelTimer(isolate, actor, key);
    },
    now() {
      const now = isolate.env.clock.now();
      observer?.did(actor, { kind: "now", value: now });
      return now;
    },
    random: (label) => draw(isolate, actor, label),
    doing(text) {
      actor.doing = String(text);
    },
    busy: (run) => isolate.pulse.busy(run),
    expose(read) {
      actor.expose = () => {
        try {
          return read();
        } catch (error) {
          // Whoever looks at the state is not to blame.
          fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, "expose"));
          return undefined;
        }
      };
    },
    defer: (cleanup) => void actor.cleanups.push(cleanup),
    stop(to, options) {
      observer?.did(actor, { kind: "stop", ...to && { to }, ...options && { value: options } });
      if (to) stopOther(isolate, actor, to, options);
      else stop(isolate, actor);
    },
  };
}

/** Takes over the answer that this step owes. */
function deferReply(isolate: Isolate, actor: Actor): Reply {
  const { step } = actor;
  if (!step?.envelope.replyTo) return () => {};
  const replyTo = take(actor, step.replyTo), { from: asker, message: { type } } = step.envelope;
  step.replyTo = undefined;
  return (value, options) => {
    isolate.observer?.did(actor, { kind: "reply", to: asker, value });
    if (!actor.owed.has(replyTo)) take(actor, undefined);
    const letter = { from: actor.ref.id, to: asker.id, type: `answer:${type}` };
    answer(isolate, replyTo, { status: "answered", value }, options?.transfer, letter);
    actor.owed.take(replyTo);
  };
}

function take(actor: Actor, replyTo: ReplyTo | undefined): ReplyTo {
  if (replyTo) return replyTo;
  throw new TypeError(`Cannot reply: "${actor.ref.id}" must answer a question only once`);
}

function tell(isolate: Isolate, actor: Actor, down: Down, as: (down: Down) => Message): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  try {
    const message = as(down);
    assertMessage("tell of an end", message);
    const contents = { lane: "control", from: down.ref, message: snapshot(message) } as const;
    enqueue(isolate, actor, { ...contents, isNotice: true });
  } catch (error) {
    fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, `end of ${down.ref.id}`));
  }
}

function draw(isolate: Isolate, actor: Actor, label: string): number {
  let next = actor.streams.get(label);
  if (!next) {
    next = substream(isolate.env.seed, `${actor.ref.id}\0${label}`);
    actor.streams.set(label, next);
  }
  return next();
}
