/**
 * Faults of a simulated run: an actor crashes or stalls, an edge is slow, a named site fails, a message
 * is lost or duplicated, some actors are disconnected, a disk is full or loses power.
 *
 * No transport of this package loses or duplicates messages: these kinds are for protocols that must
 * tolerate it.
 *
 * @module
 */

import type { Actor, PendingMessage } from "../runtime/actor.ts";
import { describeFailure } from "../runtime/failure.ts";
import type { Isolate } from "../runtime/isolate.ts";
import { fail } from "../runtime/lifecycle.ts";
import type { Candidate } from "../runtime/mod.ts";
import { snapshot } from "../runtime/observer.ts";
import type { Frame } from "../runtime/wire.ts";
import { substream } from "../runtime/world.ts";
import { assertInput } from "../runtime/types.ts";

/** Kinds of faults. `site` is a place that calls {@linkcode shouldFail}. */
export const FAULT_KINDS = [
  ...["crash-before", "crash-amid", "crash-after", "stall", "slow-edge", "site"] as const,
  ...["loss", "duplication", "partition"] as const,
  ...["disk-full", "disk-torn", "disk-reordered"] as const,
] as const;

/** One of {@linkcode FAULT_KINDS}. */
export type FaultKind = typeof FAULT_KINDS[number];

/** Options of random faults. */
export interface FaultOptions {
  /** Kinds to draw from. */
  readonly kinds: readonly FaultKind[];
  /** Maximum number of faults in a run. Default 1. */
  readonly max?: number;
  /** Probability of a fault at each step; for `loss` and `duplication`, at each message between actors;
   * for disks, at each operation. Default 0.02. */
  readonly rate?: number;
  /** Probabilities of single kinds, in place of `rate` for all kinds together. */
  readonly rates?: Partial<Readonly<Record<FaultKind, number>>>;
  /** Duration of a stall, a slow edge or a partition in virtual milliseconds. Default 1,000. */
  readonly stallMs?: number;
  /** Ids of the actors that may have faults. Default: all. */
  readonly actors?: readonly string[];
}

/** A fault of a run. From step `step` on, it occurs when it first applies to its target. */
export interface Fault {
  /** Number of steps before it. */
  readonly step: number;
  /** Its kind. */
  readonly kind: FaultKind;
  /**
   * The id of an actor; `from>actor`, an edge; `from>actor#2`, its third message; `a|b`, actors that are
   * disconnected from the others; `site#2`, the third call of a site in a step; `disk#2`, the third
   * operation of the disk.
   */
  readonly target: string;
  /** Duration of a stall, a slow edge or a partition, or delay of a duplicate, in virtual
   * milliseconds. */
  readonly forMs?: number;
  /** Number of messages and answers that an actor still sends before it crashes in a handler. */
  readonly sends?: number;
}

/** Probability that a site can fail in a run, and that it then fails at a call: the values of
 * FoundationDB's BUGGIFY (flow/Buggify.h). */
const SITE_ARMED = 0.25, SITE_FIRES = 0.25;

const CRASHES: readonly FaultKind[] = ["crash-before", "crash-amid", "crash-after"];
const HOLDS: readonly FaultKind[] = ["stall", "slow-edge", "partition"];
const DELIVERIES: readonly FaultKind[] = ["loss", "duplication"];
const OUTAGES: readonly FaultKind[] = ["disk-torn", "disk-reordered"];
const DISKS: readonly FaultKind[] = [...OUTAGES, "disk-full"];

const DEFAULT_RATE = 0.02;
const DEFAULT_STALL_MS = 1000;

/** The faults of one run. */
export type Faults = ReturnType<typeof drawnFaults>;

/** Refuses kinds and rates with which faults would not occur. @throws {RangeError} */
function checkFaults(kinds: readonly FaultKind[], rates: Readonly<Record<string, number>>): void {
  for (const [name, one] of Object.entries(rates)) {
    const isRate = one >= 0 && one <= 1;
    assertInput(isRate, "Cannot draw faults: rate must be from 0 to 1", `${one} (${name})`);
  }
  const strange = kinds.length === 0 ? "none" : kinds.find((kind) => !FAULT_KINDS.includes(kind));
  const must = `Cannot draw faults: kinds must be of ${FAULT_KINDS}`;
  assertInput(strange === undefined, must, strange);
}

/** Returns random faults, from a separate stream so that they do not change the order of the run. */
export function drawnFaults(seed: number, options: FaultOptions) {
  const { kinds, max = 1, rate = DEFAULT_RATE, rates, stallMs = DEFAULT_STALL_MS } = options;
  checkFaults(kinds, { rate, ...rates });
  const next = substream(seed, "faults"), done: Fault[] = [];
  const armed = new Map<string, boolean>();
  const mayHit = (id: string) => options.actors?.includes(id) ?? true;
  const draw = (among: readonly FaultKind[]): FaultKind | undefined => {
    const possible = kinds.filter((kind) => among.includes(kind));
    if (done.length >= max || possible.length === 0) return undefined;
    let drawn = next();
    if (rates) return possible.find((kind) => (drawn -= rates[kind] ?? rate) < 0);
    return drawn < rate ? possible[Math.floor(next() * possible.length)] : undefined;
  };
  const occur = (fault: Fault): Fault | undefined => {
    done.push(fault);
    return fault;
  };
  return {
    /** Faults that occurred. */
    done: done as readonly Fault[],
    /** Returns a stall, slow edge or partition that starts before this step, if any. */
    holds(candidates: readonly Candidate[], step: number, actors: () => readonly string[]) {
      const kind = draw(HOLDS);
      if (!kind) return undefined;
      if (kind === "partition") {
        // At least one actor, but not all.
        const all = actors(), side = all.filter((id) => mayHit(id) && next() < 0.5);
        const target = side.slice(side.length === all.length ? 1 : 0).join("|");
        return target === "" ? undefined : occur({ step, kind, target, forMs: stallMs });
      }
      const { actor, from } = candidates[Math.floor(next() * candidates.length)]!;
      if (!mayHit(actor)) return undefined;
      const target = kind === "stall" ? actor : `${from}>${actor}`;
      return occur({ step, kind, target, forMs: stallMs });
    },
    /** Returns the crash of this step, if any. */
    crashes(actor: string, step: number) {
      if (!mayHit(actor)) return undefined;
      const kind = draw(CRASHES);
      if (kind !== "crash-amid") return kind && occur({ step, kind, target: actor });
      let sends = 1;
      while (next() < 0.5) sends++;
      return occur({ step, kind, target: actor, sends });
    },
    /** Returns the loss or the duplication of a message, if any. */
    delivery(message: string, to: string, step: number) {
      if (!mayHit(to)) return undefined;
      const kind = draw(DELIVERIES);
      // A duplicate arrives directly after the message, or much later.
      const isDelayed = kind === "duplication" && next() < 0.5;
      return kind && occur({ step, kind, target: message, ...isDelayed && { forMs: stallMs } });
    },
    /** Returns the failure of a disk operation, if any. */
    failsDisk(operation: number, needsRoom: boolean, step: number) {
      const kind = draw(needsRoom ? DISKS : OUTAGES);
      return kind && occur({ step, kind, target: `disk#${operation}` });
    },
    /** Returns the failure of a site, if any. */
    failsAt(site: string, step: number) {
      if (!kinds.includes("site") || done.length >= max) return undefined;
      const isArmed = armed.getOrInsertComputed(site, () => next() < SITE_ARMED);
      if (!isArmed || next() >= SITE_FIRES) return undefined;
      return occur({ step, kind: "site", target: site });
    },
  };
}

/** Returns given faults: those of an earlier run, or some of them. */
export function knownFaults(faults: readonly Fault[]): Faults {
  const open = [...faults], done: Fault[] = [];
  const take = (step: number, kinds: readonly FaultKind[], target?: string) => {
    const index = open.findIndex((fault) =>
      fault.step <= step && kinds.includes(fault.kind) && (target ?? fault.target) === fault.target
    );
    if (index >= 0) done.push(...open.splice(index, 1));
    return index >= 0 ? done.at(-1) : undefined;
  };
  return {
    done,
    holds: (_, step) => take(step, HOLDS),
    delivery: (message, _, step) => take(step, DELIVERIES, message),
    failsDisk: (operation, _, step) => take(step, DISKS, `disk#${operation}`),
    crashes: (actor, step) => take(step, CRASHES, actor),
    failsAt: (site, step) => take(step, ["site"], site),
  };
}

/** Returns the ends of a frame that may be lost: both must be actors. */
export function endsOf(isolate: Isolate, frame: Frame) {
  const ends = frame.kind === "message" ? frame : answerEnds(isolate, frame);
  if (!ends || ends.from.serial === ends.to.serial) return undefined;
  // The actor without a parent belongs to the scenario.
  const known = [ends.from, ends.to].map(({ serial }) => isolate.actors.get(serial));
  return known.some((actor) => actor && !actor.parent) ? undefined : ends;
}

function answerEnds(isolate: Isolate, frame: Frame) {
  if (frame.kind !== "answer" || frame.outcome.status === "gone") return undefined;
  const pending = isolate.asks.get(frame.ask);
  return pending?.asker && { from: pending.to, to: pending.from };
}

/** Delivers a frame, or applies a loss or a duplication. */
export function deliverWith(
  fault: Fault | undefined,
  frame: Frame,
  deliver: (frame: Frame) => void,
  after: (delayMs: number, fire: () => void) => void,
): void {
  if (fault?.kind === "loss") return;
  // Copied before the receiver can change or transfer the message. The receiver answers the copy of an
  // ask separately; only the first answer arrives.
  const copy = fault && snapshot(frame);
  deliver(frame);
  if (!copy) return;
  if (fault.forMs === undefined) deliver(copy);
  else after(fault.forMs, () => deliver(copy));
}

/** The crash of an actor in its handler: later messages of the handler are dropped. */
export interface Crash {
  readonly actor: Actor;
  /** Number of messages and answers that it still sends. */
  left: number;
  /** Asks whose answers were dropped. */
  readonly unanswered: number[];
}

/** Returns whether the sender of a frame has crashed. Call it once for each frame. */
export function isFromDead(crash: Crash, frame: Frame): boolean {
  const isMessage = frame.kind === "message" && frame.from.serial === crash.actor.ref.serial;
  const isAnswer = frame.kind === "answer" && /^(un)?answered$/.test(frame.outcome.status);
  if (!isMessage && !isAnswer) return false;
  if (crash.left-- > 0) return false;
  if (isAnswer) crash.unanswered.push(frame.ask);
  return true;
}

/**
 * Ends an actor immediately. A handler that waits for answers never continues, because it could still
 * send. Actors that asked it learn that it is gone, its children stop, and its deferred cleanup runs,
 * which belongs to the test as well.
 */
export function kill(isolate: Isolate, { actor, envelope }: PendingMessage): void {
  if (actor.state === "stopping") return;
  const { step } = actor;
  for (const id of step?.asks ?? []) isolate.asks.take(id)?.cancel();
  step?.ends?.();
  actor.step = undefined;
  if (step?.envelope !== envelope && envelope.replyTo) {
    actor.pendingReplies.set(envelope.replyTo, true);
  }
  const error = named("InjectedCrash", `"${actor.ref.id}" was made to crash`);
  fail(isolate, actor, describeFailure(actor.ref.id, "exit", error));
}

/** Creates an error with a name. */
export const named = (name: string, message: string): Error =>
  Object.assign(new Error(message), { name });
