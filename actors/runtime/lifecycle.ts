/**
 * Stops an actor.
 *
 * An actor stops in four phases, in this order: it accepts no more messages; its children end one
 * by one, the last spawned first; its cleanups run, the last registered first; its watchers and its
 * parent are notified.
 *
 * @module
 */

import { type Actor, keyOf, SYSTEM_SERIAL, type Timer } from "./actor.ts";
import { abandonAsks, answer, settleAsk } from "./asks.ts";
import { MAILBOX_CAPACITY, type StopOptions } from "./context.ts";
import {
  describeFailure,
  type Down,
  type Failure,
  goneFailure,
  messageOf,
  type Reason,
} from "./failure.ts";
import {
  type Contents,
  enqueue,
  type Isolate,
  offer,
  post,
  rejectMessage,
  releaseId,
  schedule,
  sendReceipt,
} from "./isolate.ts";
import type { Envelope, HandlingStep, Mailbox } from "./mailbox.ts";
import { snapshot } from "./observer.ts";
import type { Addend } from "./transport.ts";
import { type ActorRef, assertInput, assertMessage, assertRef, type Message } from "./types.ts";

/** Calls `notify` once when `ref` ends, or soon if it has already ended. */
export function watch(
  isolate: Isolate,
  ref: ActorRef,
  watcher: Actor | undefined,
  notify: (down: Down) => void,
): void {
  assertRef("watch", ref);
  if (ref.system !== isolate.env.system) {
    const error = new Error(`actor "${ref.id}" is of another system`);
    return notify({ ref, reason: describeFailure(ref.id, "exit", error) });
  }
  const reason = isolate.gone.get(ref.isolate);
  if (reason) return notify({ ref, reason });
  const key = keyOf(ref), watches = isolate.watches.get(key);
  watcher?.watching.add(key);
  if (watches) watches.push({ ref, watcher, notify });
  else {
    isolate.watches.set(key, [{ ref, watcher, notify }]);
    post(isolate, ref.isolate, { kind: "watch", ref, by: isolate.number });
  }
}

/** Returns the watching actor: the system, if its owner watches. */
function keeperOf({ actors }: Isolate, watcher: Actor | undefined): Actor | undefined {
  return watcher ?? actors.get(SYSTEM_SERIAL);
}

/** Returns true if `actor` watches the actor with this key. */
function isWatching(isolate: Isolate, actor: Actor, key: string): boolean {
  const watches = isolate.watches.get(key) ?? [];
  return watches.some(({ watcher }) => keeperOf(isolate, watcher) === actor);
}

/** Removes a watcher of the actor with this key. */
function forget(isolate: Isolate, key: string, watcher: Actor): void {
  const watches = isolate.watches.get(key) ?? [];
  const others = watches.filter((one) => one.watcher !== watcher);
  if (others.length > 0) isolate.watches.set(key, others);
  else isolate.watches.delete(key);
}

/** Notes that isolate `by` watches an actor of this isolate. */
export function addWatcher(isolate: Isolate, ref: ActorRef, by: number): void {
  const actor = isolate.actors.get(ref.serial);
  if (actor) actor.watchers.add(by);
  else {
    const reason = isolate.failures.get(ref.serial) ?? "stopped";
    post(isolate, by, { kind: "down", ref, reason });
  }
}

/** Notifies all watchers in this isolate that an actor has ended. */
export function notifyWatchers(isolate: Isolate, down: Down): void {
  const key = keyOf(down.ref), watches = isolate.watches.get(key) ?? [];
  isolate.watches.delete(key);
  for (const { watcher, notify } of watches) {
    watcher?.watching.delete(key);
    const child = keeperOf(isolate, watcher)?.children.get(key);
    if (child) child.isTold = true;
    notify(down);
  }
}

/** Maximum number of failures kept for late watchers. */
const MAX_FAILURES = 1000;

/** Stops an actor because of a failure. At the top of the tree, reports the failure. */
export function fail(isolate: Isolate, actor: Actor, failure: Failure): void {
  if (!actor.parent) isolate.env.onFailure(failure);
  else if (actor.state !== "stopping") stop(isolate, actor, failure);
  else if (actor.reason === "stopped") actor.reason = failure;
}

/**
 * Adds a message at the end of an actor's lane: a message of an actor or a timer, a notice of an
 * end, or a sum. An overflow of the mailbox is a broken invariant and fails the actor.
 *
 * @returns undefined if the mailbox is full.
 */
export function admit(isolate: Isolate, actor: Actor, contents: Contents): Envelope | undefined {
  const { ref: { id }, mailbox, capacity } = actor, { from, lane, message: { type } } = contents;
  if (mailbox.length < capacity) return enqueue(isolate, actor, contents);
  const error = new RangeError(
    `Cannot enqueue "${type}" of "${from.id}": the mailbox of "${id}" must hold at most ${capacity} ` +
      `messages, received one more in the ${lane} lane behind ${mostFrequent(mailbox)}`,
  );
  fail(isolate, actor, describeFailure(id, "mailbox-overflow", error));
}

/** Enqueues a message that the actor makes from a notice of the runtime. */
export function tell(
  isolate: Isolate,
  actor: Actor,
  handling: string,
  make: () => Contents,
): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  try {
    const contents = make();
    assertMessage(`tell of the ${handling}`, contents.message);
    admit(isolate, actor, contents);
  } catch (error) {
    fail(isolate, actor, describeFailure(actor.ref.id, "throw", error, handling));
  }
}

/** Returns the three most frequent senders of waiting messages, with lanes and counts. */
function mostFrequent(mailbox: Mailbox): string {
  const senders = Map.groupBy(mailbox, ({ from, lane }) => `"${from.id}" (${lane})`);
  return [...senders].sort(([, a], [, b]) => b.length - a.length).slice(0, 3)
    .map(([sender, { length }]) => `${length} of ${sender}`).join(", ");
}

/** Cancels all timers of an actor. */
export function cancelTimers(actor: Actor): void {
  for (const { cancel } of actor.timers.values()) cancel();
  actor.timers.clear();
}

/** Stops an actor after its current step. */
export function stop(isolate: Isolate, actor: Actor, reason: Reason = "stopped"): void {
  if (actor.state === "stopping") return;
  actor.state = "stopping";
  actor.reason = reason;
  cancelTimers(actor);
  for (const envelope of actor.mailbox.drain()) {
    rejectMessage(isolate, { to: actor.ref, ...envelope }, "stopped", reason);
  }
  if (actor.step) abandonStep(isolate, actor, actor.step);
  while (actor.agenda.shift());
  isolate.picker.changed(actor);
  stopFurther(isolate, actor);
}

/** Ends a suspended step. A running step is completed. */
function abandonStep(isolate: Isolate, actor: Actor, step: HandlingStep): void {
  if (step.asks.size > 0) {
    step.isAbandoned = true;
    abandonAsks(isolate, actor, step);
  }
  if (step.isSettled) {
    step.ends?.();
    sendReceipt(isolate, step.envelope.from, step.envelope.receipt);
    actor.step = undefined;
  } else if (step.isAbandoned) isolate.unwinding.add(actor);
}

/** Continues the stop of an actor: stops its youngest child or runs its cleanups. */
export function stopFurther(isolate: Isolate, actor: Actor): void {
  if (actor.state !== "stopping" || actor.step || actor.isFinishing) return;
  const youngest = [...actor.children.values()].at(-1);
  if (youngest) return stopChild(isolate, actor, keyOf(youngest.ref), actor.isDraining);
  actor.isFinishing = true;
  schedule(isolate, actor, { type: "finish" }, actor.ref, () => finish(isolate, actor));
}

/** Stops or drains a child. A child in another isolate is killed if it does not stop in time. */
function stopChild(isolate: Isolate, parent: Actor, key: string, drain: boolean): void {
  const child = parent.children.get(key)!;
  const { ref } = child, { env } = isolate;
  if (ref.isolate !== isolate.number && !drain && !child.cancelKill) {
    const why = `it did not stop within ${env.stopGraceMs} ms`;
    child.cancelKill = env.clock.after(
      env.stopGraceMs,
      () => env.network?.kill(ref.isolate, why),
    );
  }
  post(isolate, ref.isolate, { kind: "stop", ref, drain });
}

function finish(isolate: Isolate, actor: Actor): void | Promise<void> {
  if (actor.cleanups.length === 0) return leave(isolate, actor);
  return cleanUp(actor).then(() => leave(isolate, actor));
}

async function cleanUp(actor: Actor): Promise<void> {
  for (let cleanup = actor.cleanups.pop(); cleanup; cleanup = actor.cleanups.pop()) {
    try {
      await cleanup();
    } catch (error) {
      const failure = describeFailure(actor.ref.id, "throw", error, "cleanup");
      if (actor.reason === "stopped") actor.reason = failure;
    }
  }
}

function leave(isolate: Isolate, actor: Actor): void {
  const { ref, parent, reason, watchers, pendingReplies } = actor;
  isolate.actors.delete(ref.serial);
  if (isolate.actors.size === 0) {
    // A callback of the end may end the isolate immediately, so the observer is closed first.
    isolate.observer?.ends(actor);
    isolate.observer?.closes();
    isolate.observer = undefined;
  }
  releaseId(isolate, ref);
  for (const key of actor.watching) forget(isolate, key, actor);
  if (reason !== "stopped") remember(isolate, ref.serial, reason);
  // Creating an error with its stack is expensive, so it is created only if needed.
  for (const [replyTo] of pendingReplies) {
    answer(isolate, replyTo, { status: "gone", failure: goneFailure(ref.id, reason) });
  }
  for (const by of watchers) post(isolate, by, { kind: "down", ref, reason });
  if (parent) {
    post(isolate, parent.isolate, { kind: "ended", parent, child: ref, reason });
  }
  if (isolate.actors.size === 0) isolate.env.onEmpty(reason);
}

function remember(isolate: Isolate, serial: number, failure: Failure): void {
  const { failures } = isolate;
  failures.set(serial, failure);
  if (failures.size > MAX_FAILURES) failures.delete(failures.keys().next().value!);
}

/** Handles the end of a child. A failure that the parent does not watch becomes the parent's
 * failure, even if other actors watch the child. */
export function childEnded(
  isolate: Isolate,
  parent: Actor,
  ref: ActorRef,
  reason: Reason,
): void {
  const key = keyOf(ref), child = parent.children.get(key);
  if (!child) return;
  parent.children.delete(key);
  child.cancelKill?.();
  releaseId(isolate, ref);
  child.ended?.resolve();
  // A watch may have been in transit when a child in another isolate failed.
  const isTold = child.isTold || isWatching(isolate, parent, key);
  if (reason !== "stopped" && !isTold) fail(isolate, parent, reason);
  stopFurther(isolate, parent);
}

/** Adds an array across isolates. See {@linkcode Context.allReduce}. */
export function allReduce(
  isolate: Isolate,
  actor: Actor,
  addend: Addend,
  as: (sums: Addend["values"]) => Message,
): void {
  const { ref: from } = actor, { collectives } = isolate.env;
  if (!collectives) {
    throw new TypeError(
      `Cannot add arrays: the isolate of "${from.id}" must be one of a transport with collectives`,
    );
  }
  collectives.allReduce(addend, (sums) => {
    tell(isolate, actor, "sums", () => ({ lane: "data", from, message: as(sums) }));
  });
}

/** Type of the message with the result of an external operation. */
const TYPE = "outside";

/** Runs an external operation. See {@linkcode Context.external}. */
export function external<T>(
  isolate: Isolate,
  actor: Actor,
  run: () => T | Promise<T>,
): Promise<T> {
  const { ref, step } = actor;
  if (!step || actor.state === "stopping") {
    return Promise.reject(
      new TypeError(`Cannot wait for external work: "${ref.id}" must be handling a message`),
    );
  }
  const id = isolate.nextAsk++, nth = actor.asked++;
  // The order of completion is unknown, so each operation is a separate sender.
  const to: ActorRef = { id: TYPE, isolate: isolate.number, serial: -1 - id };
  let thrown: { readonly error: unknown } | undefined;
  const end = new Promise<unknown>((resolve, reject) => {
    isolate.asks.set(id, {
      ...{ from: ref, to, type: TYPE, timeoutMs: Infinity, nth, asker: actor },
      ...{ resolve, reject: (error) => reject(thrown ? thrown.error : error), cancel: () => {} },
    });
  });
  step.asks.add(id);
  const work = isolate.env.external ? isolate.env.external(run) : isolate.heartbeat.busy(run);
  step.wake?.();
  offer(isolate, actor);
  const failed = (error: unknown) => {
    thrown = { error };
    const failure: Failure = describeFailure(ref.id, "throw", error, TYPE);
    settleAsk(isolate, id, { status: "failed", failure });
  };
  work.then((value) => {
    const refusal = isolate.observer && refuse(value);
    if (refusal) failed(refusal);
    else settleAsk(isolate, id, { status: "answered", value });
  }, failed);
  return end as Promise<T>;
}

/** Returns an error if a result cannot be cloned, because journals store results. */
function refuse(value: unknown): TypeError | undefined {
  try {
    snapshot(value);
  } catch (error) {
    return new TypeError(
      `Cannot record an external value: it must be structured-cloneable, ${messageOf(error)}`,
    );
  }
}

/** Stops `ref` on behalf of `by`. See {@linkcode Context.stop}. */
export function stopOther(
  isolate: Isolate,
  by: Actor,
  ref: ActorRef,
  { drain = false }: StopOptions = {},
): void {
  assertRef("stop", ref);
  if (ref.system !== isolate.env.system) return;
  const key = keyOf(ref);
  if (by.children.has(key)) stopChild(isolate, by, key, drain);
  else post(isolate, ref.isolate, { kind: "stop", ref, drain });
}

/** Drains an actor: it handles the messages that have arrived and then stops. Later messages become
 * dead letters. */
export function drain(isolate: Isolate, actor: Actor): void {
  if (actor.state === "stopping" || actor.isDraining) return;
  actor.isDraining = true;
  cancelTimers(actor);
  endIfDrained(isolate, actor);
}

/** Stops a draining actor that has no more messages. */
export function endIfDrained(isolate: Isolate, actor: Actor): void {
  const { isDraining, state, step, mailbox } = actor;
  if (isDraining && state === "ready" && !step && mailbox.length === 0) stop(isolate, actor);
}

/** Stops an actor without draining, and ends its draining and that of its children. */
export function stopNow(isolate: Isolate, actor: Actor): void {
  const wasDraining = actor.isDraining;
  actor.isDraining = false;
  if (actor.state !== "stopping") stop(isolate, actor);
  else if (wasDraining) stopFurther(isolate, actor);
}

/** Stops a child of an actor. Resolves when its id is free again. */
export async function endChild(
  isolate: Isolate,
  parent: Actor,
  ref: ActorRef,
  drain: boolean,
): Promise<void> {
  const key = keyOf(ref), child = parent.children.get(key);
  if (!child || ref.system !== isolate.env.system) return;
  child.ended ??= Promise.withResolvers();
  stopChild(isolate, parent, key, drain);
  await child.ended.promise;
}

/** Starts a timer that sends `message` to the actor. Replaces a timer with the same key. */
export function startTimer(
  isolate: Isolate,
  actor: Actor,
  delayMs: number,
  message: Message,
  key?: string,
): void {
  assertInput(delayMs >= 0, "Cannot start a timer: delayMs must be 0 or more", delayMs);
  assertMessage("start a timer", message);
  if (actor.state === "stopping" || actor.isDraining) return;
  if (key !== undefined) cancelTimer(isolate, actor, key);
  const must = `"${actor.ref.id}" must have at most ${MAILBOX_CAPACITY} of them`;
  const hasRoom = actor.timers.size < MAILBOX_CAPACITY;
  assertInput(hasRoom, `Cannot start a timer: ${must}`, "one more");
  const name = key ?? Symbol();
  const copy = snapshot(message);
  assertMessage("start a timer", copy);
  const timer: Timer = {
    cancel: isolate.env.clock.after(delayMs, () => {
      const contents = { from: actor.ref, message: copy, timerKey: key };
      timer.envelope = admit(isolate, actor, { lane: "control", ...contents });
      // A timer with a key is kept while its message waits, so that it can still be replaced.
      if (key === undefined) actor.timers.delete(name);
    }),
  };
  actor.timers.set(name, timer);
}

/** Cancels a timer, and removes its message if it waits. */
function cancelTimer(isolate: Isolate, actor: Actor, key: string): void {
  const timer = actor.timers.get(key);
  if (!timer) return;
  actor.timers.delete(key);
  timer.cancel();
  if (timer.envelope && actor.mailbox.remove(timer.envelope)) offer(isolate, actor);
}
