/**
 * Spawns actors and creates their contexts.
 *
 * @module
 */

import { Actor, type ActorFactory, type AnyHandlers, keyOf, OTHERS } from "./actor.ts";
import { ask, deferReply } from "./asks.ts";
import { checkHandlers, checkSpawn, isPlain } from "./checks.ts";
import {
  type AskCall,
  type AskOptions,
  type Context,
  MAILBOX_CAPACITY,
  type SpawnOptions,
} from "./context.ts";
import { describeFailure } from "./failure.ts";
import { type Isolate, post, schedule, sendMessage } from "./isolate.ts";
import {
  allReduce,
  external,
  fail,
  startTimer,
  stop,
  stopOther,
  tell,
  watch,
} from "./lifecycle.ts";
import { type Effect, isCloneError, snapshot } from "./observer.ts";
import { refuse } from "./steps.ts";
import { type ActorRef, type ActorSpec, assertInput, functionOf, type Message } from "./types.ts";
import type { LaunchFrame } from "./wire.ts";
import { substream } from "./world.ts";

/** Spawns a child. Passed as a parameter because contexts and spawning depend on each other. */
type Spawn = <T extends Message>(
  isolate: Isolate,
  parent: Actor,
  spec: ActorSpec,
  init: unknown,
  options: SpawnOptions,
) => ActorRef<T>;

/** Creates the {@linkcode Context} of an actor. */
function createContext<M extends Message>(
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
    setActivity: (text) => void (actor.activity = String(text)),
    busy: (run) => isolate.heartbeat.busy(run),
    external(run) {
      did("outside");
      return external(isolate, actor, run);
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
      // The error belongs to the actor, not to the tool that reads the state.
      fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, "expose"));
      return undefined;
    }
  };
}

function draw(isolate: Isolate, actor: Actor, label: string): number {
  const open = () => substream(isolate.env.seed, `${actor.ref.id}\0${label}`);
  return actor.streams.getOrInsertComputed(label, open)();
}

/**
 * Returns the handlers of an actor. For an instance, these are the methods of its class and base
 * classes, bound to the instance so that they can use its private fields. Methods of
 * `Object.prototype` are not handlers.
 *
 * @param id id of the actor.
 * @param factory name of its factory.
 * @throws {TypeError} if `made` is not an object, or a handler is not a function.
 */
export function handlersOf(id: string, factory: string, made: unknown): AnyHandlers {
  checkHandlers(id, factory, made);
  if (isPlain(made)) return made as AnyHandlers;
  const others = (made as AnyHandlers)[OTHERS];
  const handlers: Record<string | symbol, unknown> = Object.create(null);
  if (others) handlers[OTHERS] = others.bind(made);
  for (let level: object = made; !isRoot(level); level = Object.getPrototypeOf(level)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(level))) {
      if (typeof value !== "function" || name in handlers || name in Object.prototype) continue;
      handlers[name] = value.bind(made);
    }
  }
  return handlers as AnyHandlers;
}

/** Returns true for the root of a prototype chain, from any realm. */
function isRoot(level: object | null): boolean {
  return level === null || Object.getPrototypeOf(level) === null;
}

/** Serial of the first actor of an isolate. Serial 0 is the system itself. */
export const FIRST_SERIAL = 1;

/**
 * Maximum number of isolates that one isolate may start. The n-th isolate started by isolate p has
 * the number p · 65,536 + n, so numbers are unique without coordination.
 */
const MAX_ISOLATES = 65_535;

/** Spawns a child of `parent`. See {@linkcode Context.spawn}. */
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
  const isUnique = !isolate.ids.has(id);
  assertInput(isUnique, `${cannot} id must be unique`, "that of a living actor");
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
  const { subscription } = isolate;
  if (elsewhere && subscription) post(isolate, ref.isolate, { kind: "subscribe", subscription });
  isolate.ids.set(id, keyOf(ref));
  parent.children.set(keyOf(ref), { ref });
  return ref;
}

function nextIsolate(isolate: Isolate, cannot: string): number {
  const number = isolate.number * (MAX_ISOLATES + 1) + isolate.started + 1;
  const isFree = isolate.started < MAX_ISOLATES && Number.isSafeInteger(number);
  const must = `an isolate must start at most ${MAX_ISOLATES} others, nested at most 3 deep`;
  assertInput(isFree, `${cannot} ${must}`, "one more");
  isolate.started++;
  return number;
}

/** Returns the number of the isolate that has started this one. */
export function starterOf(number: number): number {
  return Math.floor(number / (MAX_ISOLATES + 1));
}

/** Adds the actor of a launch frame to this isolate. Its first step calls the factory. */
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
  const exports = await isolate.heartbeat.busy(() => load(spec.module));
  // It was stopped meanwhile: a factory that spawns fails, which no longer matters.
  if (actor.state === "stopping" && actor.step) actor.step.isAbandoned = true;
  const factory = functionOf(`Cannot make "${actor.ref.id}"`, spec, exports);
  const ctx = createContext<Message>(isolate, actor, spawn);
  const make = factory as ActorFactory<unknown, Message>;
  const made = await isolate.heartbeat.busy(() => make(ctx, init, spec.argument));
  actor.handlers = handlersOf(actor.ref.id, spec.export, made);
  if (actor.state === "starting") actor.state = "ready";
}
