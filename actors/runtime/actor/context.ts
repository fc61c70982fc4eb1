/**
 * The context that an actor gets.
 *
 * @module
 */

import type { Actor } from "./actor.ts";
import { allReduce } from "./all_reduce.ts";
import { ask } from "./asks.ts";
import { callerOf } from "./current_step.ts";
import { outside } from "./outside.ts";
import type { AskCall, AskOptions, Context, SpawnOptions } from "../context_api.ts";
import { describeFailure, type Down } from "../failure.ts";
import type { Isolate } from "../isolate/isolate.ts";
import { admit, fail, stop } from "./lifecycle.ts";
import { assertMessage } from "../messages.ts";
import { substream } from "../world/random.ts";
import { sendMessage } from "../isolate/sending.ts";
import { snapshot } from "../snapshot.ts";
import { deferReply, forward } from "./replies.ts";
import { stopOther } from "./stopping.ts";
import { cancelTimer, startTimer } from "./timers.ts";
import { nameOf } from "../packages/unpack.ts";
import type { ActorRef, AnySpec, Message } from "../types.ts";
import { unwatch, watch } from "./watches.ts";

/** Makes a child; passed in, as what spawns needs contexts. */
type Spawn = <T extends Message>(
  isolate: Isolate,
  parent: Actor,
  spec: AnySpec,
  init: unknown,
  options: SpawnOptions,
) => ActorRef<T>;

/** The {@linkcode Context} of an actor. */
export function createContext<M extends Message>(
  isolate: Isolate,
  actor: Actor,
  spawn: Spawn,
): Context<M> {
  return {
    self: actor.ref as ActorRef<Message> as ActorRef<M>,
    ...messagesOf<M>(isolate, actor),
    ...familyOf<M>(isolate, actor, spawn),
    ...timeOf<M>(isolate, actor),
    random: (label) => draw(isolate, actor, label),
    doing(text) {
      actor.doing = String(text);
    },
    busy: (run) => isolate.pulse.busy(run),
    outside(run) {
      isolate.observer?.did(actor, { kind: "outside" });
      return outside(isolate, actor, run);
    },
    allReduce: (addend, as) => allReduce(isolate, actor, addend, as),
    reentrant(maxSteps = Infinity) {
      if (!(maxSteps >= 1)) {
        throw new RangeError(
          `Cannot overlap: the number of steps must be 1 or more, received ${maxSteps}`,
        );
      }
      actor.maxSteps = maxSteps;
    },
    expose: (read) => expose(isolate, actor, read),
    defer: (cleanup) => void actor.cleanups.push(cleanup),
  };
}

/** What an actor says to others. */
function messagesOf<M extends Message>(
  isolate: Isolate,
  actor: Actor,
): Pick<Context<M>, "send" | "ask" | "reply" | "deferReply" | "forward"> {
  const { observer } = isolate, { ref } = actor;
  return {
    send(to, message, options) {
      observer?.did(actor, { kind: "send", to, value: message });
      sendMessage(isolate, ref, to, message, options);
    },
    ask: ((to: ActorRef, message: Message, options?: AskOptions) => {
      observer?.did(actor, { kind: "ask", to, value: message });
      return ask(isolate, ref, actor, to, message, options);
    }) as AskCall,
    reply(value, options) {
      if (callerOf(actor)?.envelope.replyTo) deferReply(isolate, actor)(value, options);
    },
    deferReply: () => deferReply(isolate, actor),
    forward(to, options = {}) {
      observer?.did(actor, { kind: "forward", to, value: options.receipt });
      forward(isolate, actor, to, options);
    },
  };
}

/** How an actor makes, watches and stops others. */
function familyOf<M extends Message>(
  isolate: Isolate,
  actor: Actor,
  spawn: Spawn,
): Pick<Context<M>, "spawn" | "watch" | "unwatch" | "stop"> {
  const { observer } = isolate;
  return {
    spawn(spec, init, options) {
      observer?.did(actor, { kind: "spawn", value: { made: nameOf(spec), init, id: options.id } });
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
    stop(to, options) {
      observer?.did(actor, { kind: "stop", ...to && { to }, ...options && { value: options } });
      if (to) stopOther(isolate, actor, to, options);
      else stop(isolate, actor);
    },
  };
}

/** The clock and the timers of an actor. */
function timeOf<M extends Message>(
  isolate: Isolate,
  actor: Actor,
): Pick<Context<M>, "after" | "cancel" | "now"> {
  const { observer } = isolate;
  return {
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

function tell(isolate: Isolate, actor: Actor, down: Down, as: (down: Down) => Message): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  try {
    const message = as(down);
    assertMessage("tell of an end", message);
    const contents = { lane: "control", from: down.ref, message: snapshot(message) } as const;
    admit(isolate, actor, { ...contents, isNotice: true });
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
