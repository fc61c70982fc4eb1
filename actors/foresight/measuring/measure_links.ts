/**
 * Measures messages: latency (α) and bandwidth (1/β) of a transport.
 *
 * @module
 */

import type { ActorRef, PlaceName, System } from "../../runtime/mod.ts";
import { PINGER, type PingerMessage } from "./pinger.ts";
import { median } from "../profile/median.ts";
import type { LinkCost } from "../profile/profile.ts";

/** Bytes of the messages: none to speak of, and those of activations. */
const SMALL_BYTES = 4, LARGE_BYTES = 2 ** 22;

/** Round trips of a round. */
const TRIPS = 25;

/** A message of a minute is lost. */
const TIMEOUT_MS = 60_000;

/** Shorter times for so many bytes are those of a buffer that is handed over, not copied. */
const COPIED_MS_MIN = 0.05;

/** Milliseconds of round trips, with little in them and with much. */
export interface Trips {
  readonly small: readonly number[];
  readonly large: readonly number[];
}

/** Opens a link between two actors that live there; what is returned sends messages to and fro. */
export function openLink(system: System, isolate: PlaceName): () => Promise<Trips> {
  const [one, to] = [0, 1].map((n) =>
    system.spawn(PINGER, undefined, { id: `pinger ${n} ${isolate}`, isolate })
  ) as [ActorRef<PingerMessage>, ActorRef<PingerMessage>];
  const play = (bytes: number) =>
    system.ask<PingerMessage, number[]>(one, { type: "Play", to, bytes, trips: TRIPS }, {
      timeoutMs: TIMEOUT_MS,
    });
  return async () => ({ small: await play(SMALL_BYTES), large: await play(LARGE_BYTES) });
}

/** A link from what its messages took. */
export function linkOf(rounds: readonly Trips[]): LinkCost {
  const middle = (name: keyof Trips) => median(rounds.flatMap((trips) => trips[name])) / 2;
  const latencyMs = middle("small"), moreMs = middle("large") - latencyMs;
  if (moreMs < COPIED_MS_MIN) return { latencyMs };
  return { latencyMs, bytesPerMs: (LARGE_BYTES - SMALL_BYTES) / moreMs };
}
