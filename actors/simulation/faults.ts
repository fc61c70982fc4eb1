/**
 * Faults as choices: an actor crashes or stalls, an edge is slow, a named site fails.
 *
 * Only what the transport within one isolate can do: nothing is lost on the way, nothing overtakes.
 *
 * @module
 */

import { substream } from "../runtime/random.ts";
import type { Candidate } from "../runtime/mod.ts";

/** What can go wrong. `site` is a place that asks {@linkcode shouldFail}. */
export type FaultKind = "crash-before" | "crash-after" | "stall" | "slow-edge" | "site";

/** Which faults a run may have. */
export interface FaultOptions {
  /** Kinds to draw from. */
  readonly kinds: readonly FaultKind[];
  /** Most faults in a run. Default 1. */
  readonly max?: number;
  /** Probability of a fault at a step. Default 0.02. */
  readonly rate?: number;
  /** How long a stall or a slow edge lasts, in virtual milliseconds. Default 1,000. */
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
  /** Id of the actor, `from>actor` of an edge, or the name of the site. */
  readonly target: string;
  /** How long a stall or a slow edge lasts, in virtual milliseconds. */
  readonly forMs?: number;
}

/** Probability that a site may fail in a run at all, and that it then does when asked: the figures
 * of FoundationDB's BUGGIFY (flow/Buggify.h). */
const SITE_ARMED = 0.25, SITE_FIRES = 0.25;

const DEFAULT_RATE = 0.02;
const DEFAULT_STALL_MS = 1000;

/** The faults of one run. */
export interface Faults {
  /** Faults that happened. */
  readonly done: readonly Fault[];
  /** The stall or slow edge that begins before this step, if one does. */
  holds(candidates: readonly Candidate[], step: number): Fault | undefined;
  /** The crash of this step, if it has one. */
  crashes(actor: string, step: number): Fault | undefined;
  /** Whether a site fails. */
  failsAt(site: string, step: number): boolean;
}

/** Faults drawn by chance: a stream of its own, so that the order of the run stays as it is. */
export function drawnFaults(seed: number, options: FaultOptions): Faults {
  const { kinds, max = 1, rate = DEFAULT_RATE, stallMs = DEFAULT_STALL_MS, actors } = options;
  const next = substream(seed, "faults"), done: Fault[] = [];
  const armed = new Map<string, boolean>();
  const mayHit = (id: string) => !actors || actors.includes(id);
  const draw = (among: readonly FaultKind[]): FaultKind | undefined => {
    const possible = kinds.filter((kind) => among.includes(kind));
    if (done.length >= max || possible.length === 0 || next() >= rate) return undefined;
    return possible[Math.floor(next() * possible.length)];
  };
  const happen = (fault: Fault) => {
    done.push(fault);
    return fault;
  };
  return {
    done,
    holds(candidates, step) {
      const kind = draw(["stall", "slow-edge"]);
      if (!kind) return undefined;
      const { actor, from } = candidates[Math.floor(next() * candidates.length)]!;
      if (!mayHit(actor)) return undefined;
      const target = kind === "stall" ? actor : `${from}>${actor}`;
      return happen({ step, kind, target, forMs: stallMs });
    },
    crashes(actor, step) {
      if (!mayHit(actor)) return undefined;
      const kind = draw(["crash-before", "crash-after"]);
      return kind && happen({ step, kind, target: actor });
    },
    failsAt(site, step) {
      if (!kinds.includes("site") || done.length >= max) return false;
      if (!armed.has(site)) armed.set(site, next() < SITE_ARMED);
      if (!armed.get(site) || next() >= SITE_FIRES) return false;
      happen({ step, kind: "site", target: site });
      return true;
    },
  };
}

/** Faults that are known: those of a run before, or what is left of them. */
export function knownFaults(faults: readonly Fault[]): Faults {
  const open = [...faults], done: Fault[] = [];
  const take = (step: number, isIt: (fault: Fault) => boolean) => {
    const index = open.findIndex((fault) => fault.step <= step && isIt(fault));
    if (index < 0) return undefined;
    const [fault] = open.splice(index, 1);
    done.push(fault!);
    return fault;
  };
  return {
    done,
    holds: (_, step) => take(step, ({ kind }) => kind === "stall" || kind === "slow-edge"),
    crashes: (actor, step) =>
      take(step, ({ kind, target }) => kind.startsWith("crash") && target === actor),
    failsAt: (site, step) =>
      take(step, ({ kind, target }) => kind === "site" && target === site) !== undefined,
  };
}

/** No faults. */
export const NO_FAULTS: Faults = {
  done: [],
  holds: () => undefined,
  crashes: () => undefined,
  failsAt: () => false,
};
