/**
 * Faults as choices: an actor crashes or stalls, an edge is slow, a named site fails, a message is
 * lost or comes twice, some actors are cut off, a disk is full or loses its power.
 *
 * No transport here loses or doubles messages: those kinds are for protocols that must stand it.
 *
 * @module
 */

import type { Actor } from "../runtime/actor.ts";
import type { PendingMessage } from "../runtime/choose.ts";
import { describeFailure } from "../runtime/failure.ts";
import type { Isolate } from "../runtime/isolate.ts";
import { fail } from "../runtime/lifecycle.ts";
import type { Candidate } from "../runtime/mod.ts";
import { snapshot } from "../runtime/observer.ts";
import type { ActorRef } from "../runtime/types.ts";
import type { Frame } from "../runtime/wire.ts";
import { substream } from "../runtime/world.ts";

/** What can go wrong. `site` is a place that asks {@linkcode shouldFail}. */
export const FAULT_KINDS = [
  ...["crash-before", "crash-amid", "crash-after", "stall", "slow-edge", "site"] as const,
  ...["loss", "duplication", "partition"] as const,
  ...["disk-full", "disk-torn", "disk-reordered"] as const,
] as const;

/** One of {@linkcode FAULT_KINDS}. */
export type FaultKind = typeof FAULT_KINDS[number];

/** Which faults a run may have. */
export interface FaultOptions {
  /** Kinds to draw from. */
  readonly kinds: readonly FaultKind[];
  /** Most faults in a run. Default 1. */
  readonly max?: number;
  /** Probability of a fault at a step, for `loss` and `duplication` of each message between actors,
   * for those of disks of each operation. Default 0.02. */
  readonly rate?: number;
  /** Probabilities for single kinds, instead of `rate` for all together. */
  readonly rates?: Partial<Readonly<Record<FaultKind, number>>>;
  /** How long a stall, a slow edge or a partition lasts, in virtual milliseconds. Default 1,000. */
  readonly stallMs?: number;
  /** Ids of the actors that may be hit. Default: all. */
  readonly actors?: readonly string[];
}

/** A fault of a run. It waits from step `step` on until it can happen to its target. */
export interface Fault {
  /** Steps before it. */
  readonly step: number;
  /** What goes wrong. */
  readonly kind: FaultKind;
  /**
   * Id of the actor, `from>actor` of an edge, `from>actor#2` of its third message, `a|b` of actors
   * that are cut off from the others, `site#2` of a site that asks for the third time in a step,
   * `disk#2` of the third operation of the disk.
   */
  readonly target: string;
  /** How long a stall, a slow edge or a partition lasts, and how late a copy comes, in virtual
   * milliseconds. */
  readonly forMs?: number;
  /** How many messages and answers of its last handler leave an actor that crashes amid it. */
  readonly sends?: number;
}

/** Probability that a site may fail in a run at all, and that it then does when asked: the figures
 * of FoundationDB's BUGGIFY (flow/Buggify.h). */
const SITE_ARMED = 0.25, SITE_FIRES = 0.25;

const CRASHES: readonly FaultKind[] = ["crash-before", "crash-amid", "crash-after"];
const HOLDS: readonly FaultKind[] = ["stall", "slow-edge", "partition"];
const CARRIES: readonly FaultKind[] = ["loss", "duplication"];
const OUTAGES: readonly FaultKind[] = ["disk-torn", "disk-reordered"];
const DISKS: readonly FaultKind[] = [...OUTAGES, "disk-full"];

const DEFAULT_RATE = 0.02;
const DEFAULT_STALL_MS = 1000;

/** The faults of one run. */
export type Faults = ReturnType<typeof drawnFaults>;

/** Faults drawn by chance: a stream of its own, so that the order of the run stays as it is. */
export function drawnFaults(seed: number, options: FaultOptions) {
  const { kinds, max = 1, rate = DEFAULT_RATE, rates, stallMs = DEFAULT_STALL_MS } = options;
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
  const happen = (fault: Fault): Fault | undefined => {
    done.push(fault);
    return fault;
  };
  return {
    /** Faults that happened. */
    done: done as readonly Fault[],
    /** The stall, slow edge or partition that begins before this step, if one does. */
    holds(candidates: readonly Candidate[], step: number, actors: () => readonly string[]) {
      const kind = draw(HOLDS);
      if (!kind) return undefined;
      if (kind === "partition") {
        // Some of the actors, but not all.
        const all = actors(), side = all.filter((id) => mayHit(id) && next() < 0.5);
        const target = side.slice(side.length === all.length ? 1 : 0).join("|");
        return target === "" ? undefined : happen({ step, kind, target, forMs: stallMs });
      }
      const { actor, from } = candidates[Math.floor(next() * candidates.length)]!;
      if (!mayHit(actor)) return undefined;
      const target = kind === "stall" ? actor : `${from}>${actor}`;
      return happen({ step, kind, target, forMs: stallMs });
    },
    /** The crash of this step, if it has one. */
    crashes(actor: string, step: number) {
      if (!mayHit(actor)) return undefined;
      const kind = draw(CRASHES);
      if (kind !== "crash-amid") return kind && happen({ step, kind, target: actor });
      let sends = 1;
      while (next() < 0.5) sends++;
      return happen({ step, kind, target: actor, sends });
    },
    /** The loss or the copy of a message on its way, if it has one. */
    carries(message: string, to: string, step: number) {
      if (!mayHit(to)) return undefined;
      const kind = draw(CARRIES);
      // A copy comes right behind the message, or when everybody has long forgotten it.
      const isLate = kind === "duplication" && next() < 0.5;
      return kind && happen({ step, kind, target: message, ...isLate && { forMs: stallMs } });
    },
    /** The failure of a disk in an operation, if it fails. */
    failsDisk(operation: number, needsRoom: boolean, step: number) {
      const kind = draw(needsRoom ? DISKS : OUTAGES);
      return kind && happen({ step, kind, target: `disk#${operation}` });
    },
    /** The failure of a site that asks, if it fails. */
    failsAt(site: string, step: number) {
      if (!kinds.includes("site") || done.length >= max) return undefined;
      const isArmed = armed.getOrInsertComputed(site, () => next() < SITE_ARMED);
      if (!isArmed || next() >= SITE_FIRES) return undefined;
      return happen({ step, kind: "site", target: site });
    },
  };
}

/** Faults that are known: those of a run before, or what is left of them. */
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
    carries: (message, _, step) => take(step, CARRIES, message),
    failsDisk: (operation, _, step) => take(step, DISKS, `disk#${operation}`),
    crashes: (actor, step) => take(step, CRASHES, actor),
    failsAt: (site, step) => take(step, ["site"], site),
  };
}

/** The ends of the way of a frame. */
interface Ends {
  readonly from: ActorRef;
  readonly to: ActorRef;
}

/** Who sends a frame to whom, if both are actors and it may be lost. */
export function endsOf(isolate: Isolate, frame: Frame): Ends | undefined {
  const ends = frame.kind === "message" ? frame : answerEnds(isolate, frame);
  if (!ends || ends.from.serial === ends.to.serial) return undefined;
  // The actor without a parent is the scenario's own.
  const known = [ends.from, ends.to].map(({ serial }) => isolate.actors.get(serial));
  return known.some((actor) => actor && !actor.parent) ? undefined : ends;
}

function answerEnds(isolate: Isolate, frame: Frame): Ends | undefined {
  if (frame.kind !== "answer" || frame.outcome.status === "gone") return undefined;
  const pending = isolate.asks.get(frame.ask);
  return pending?.asker && { from: pending.to, to: pending.from };
}

/** Delivers a frame as often, and as late, as a fault says. */
export function deliverWith(
  fault: Fault | undefined,
  frame: Frame,
  deliver: (frame: Frame) => void,
  after: (delayMs: number, fire: () => void) => void,
): void {
  if (fault?.kind === "loss") return;
  // Copied before anybody can change or transfer what the message holds.
  // A copy is a question of its own for whoever answers it; only the first answer arrives.
  const copy = fault && snapshot(frame);
  deliver(frame);
  if (!copy) return;
  if (fault.forMs === undefined) deliver(copy);
  else after(fault.forMs, () => deliver(copy));
}

/** An actor that crashes in the middle of its handler: the rest of that is heard by nobody. */
export interface Dying {
  readonly actor: Actor;
  /** Messages and answers that still leave it. */
  left: number;
  /** Questions whose answers come too late. */
  readonly unanswered: number[];
}

/** Whether a frame comes from an actor that is dead by now; to be asked of each frame once. */
export function isFromDead(dying: Dying, frame: Frame): boolean {
  const isMessage = frame.kind === "message" && frame.from.serial === dying.actor.ref.serial;
  const isAnswer = frame.kind === "answer" && /^(un)?answered$/.test(frame.outcome.status);
  if (!isMessage && !isAnswer) return false;
  if (dying.left-- > 0) return false;
  if (isAnswer) dying.unanswered.push(frame.ask);
  return true;
}

/**
 * Ends an actor at once. A handler that waits for answers never goes on: it could send from beyond
 * the grave. Who asked the actor learns that it is gone, its children stop, and what it had
 * deferred is cleaned up, as that belongs to the test as well.
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

/** An error of such a name. */
export function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
