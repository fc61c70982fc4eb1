/**
 * Measures messages: latency (α) and bandwidth (1/β) of a transport.
 *
 * @module
 */

import type { ActorRef, PlaceName, System } from "../../runtime/mod.ts";
import { PINGER, type PingerMessage } from "./pinger.ts";
import type { LinkCost } from "./profile.ts";

/** Bytes of the messages: none to speak of, and those of activations. */
const SMALL_BYTES = 4, LARGE_BYTES = 2 ** 22;

/** Round trips of one question, and how often it is asked. */
const TRIPS = 40, ASKED = 5;

/** Shorter times for so many bytes are those of a buffer that is handed over, not copied. */
const COPIED_MS_MIN = 0.02;

/** Measures the messages between two actors that live there. */
export async function measureLink(system: System, isolate: PlaceName): Promise<LinkCost> {
  const [one, to] = [0, 1].map((n) =>
    system.spawn(PINGER, undefined, { id: `pinger ${n} ${isolate}`, isolate })
  ) as [ActorRef<PingerMessage>, ActorRef<PingerMessage>];
  const small: number[] = [], large: number[] = [];
  for (let i = 0; i <= ASKED; i++) {
    for (const [times, bytes] of [[small, SMALL_BYTES], [large, LARGE_BYTES]] as const) {
      const game = { type: "Play", to, bytes, trips: TRIPS } as const;
      const trips = await system.ask<PingerMessage, number[]>(one, game, { timeoutMs: 60_000 });
      if (i > 0) times.push(...trips); // the first is for the machine to warm up
    }
  }
  await Promise.all([system.stop(one), system.stop(to)]);
  return linkOf(small, large);
}

/** A link from the milliseconds of round trips with little in them, and with much. */
export function linkOf(small: readonly number[], large: readonly number[]): LinkCost {
  const latencyMs = median(small) / 2, moreMs = median(large) / 2 - latencyMs;
  if (moreMs < COPIED_MS_MIN) return { latencyMs };
  return { latencyMs, bytesPerMs: (LARGE_BYTES - SMALL_BYTES) / moreMs };
}

/** The middle of some numbers, of two the mean. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b), middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}
