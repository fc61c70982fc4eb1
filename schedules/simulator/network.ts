/** Messages between workers, one after the other on each channel. */

import type { Link, Network } from "./model.ts";

/** Times of a message: the end of sending, and the arrival. */
interface Transmission {
  readonly sentMs: number;
  readonly arrivesMs: number;
}

/** The channels of a network, with the time at which each becomes free. */
export class Channels {
  readonly #network: Network | undefined;
  readonly #workers: number;
  readonly #free = new Map<number, number>();

  constructor(network: Network | undefined, workers: number) {
    this.#network = network;
    this.#workers = workers;
  }

  /**
   * Sends a message to another worker, after all earlier messages of its channel.
   *
   * @param latencyFactor A factor of its latency.
   */
  send(now: number, from: number, to: number, bytes: number, latencyFactor: number): Transmission {
    const network = this.#network;
    if (network === undefined) return { sentMs: now, arrivesMs: now };
    const isLocal = this.#node(from) === this.#node(to);
    const { latencyMs, bytesPerMs } = isLocal ? network.local ?? network.link : network.link;
    const latency = latencyMs * latencyFactor;
    if (bytesPerMs === undefined) return { sentMs: now, arrivesMs: now + latency };
    const channel = this.#channel(from, to, isLocal);
    const sentMs = Math.max(now, this.#free.get(channel) ?? 0) + bytes / bytesPerMs;
    this.#free.set(channel, sentMs);
    return { sentMs, arrivesMs: sentMs + latency };
  }

  #node(worker: number): number {
    return Math.floor(worker / (this.#network?.nodeSize ?? 1));
  }

  /** The number of a channel: channels of pairs come first, then those of workers, then of nodes. */
  #channel(from: number, to: number, isLocal: boolean): number {
    const { sharing = "pair" } = this.#network ?? {}, workers = this.#workers;
    if (sharing === "pair") return from * workers + to;
    const ofWorker = workers * workers + from;
    return sharing === "worker" || isLocal ? ofWorker : -1 - this.#node(from);
  }
}

/**
 * Half of an all-reduce: its latency and transfer time. Reduce-scatter and all-gather cost the same.
 * With p ranks, c the
 * largest power of two up to p, and n bytes, each half costs: `direct` α + (p−1)/p·nβ, `ring`
 * (p−1)α + (p−1)/p·nβ, `rabenseifner` log₂c·α + (c−1)/c·nβ, and α + nβ more where p is not c.
 */
export function reduceHalf(
  algorithm: "direct" | "ring" | "rabenseifner",
  ranks: number,
  bytes: number,
  { latencyMs, bytesPerMs = Infinity }: Link,
): { readonly latencyMs: number; readonly transferMs: number } {
  if (ranks === 1) return { latencyMs: 0, transferMs: 0 };
  const core = 2 ** Math.floor(Math.log2(ranks)), fold = ranks === core ? 0 : 1;
  const [rounds, share] = {
    direct: [1, (ranks - 1) / ranks] as const,
    ring: [ranks - 1, (ranks - 1) / ranks] as const,
    rabenseifner: [Math.log2(core) + fold, (core - 1) / core + fold] as const,
  }[algorithm];
  return { latencyMs: rounds * latencyMs, transferMs: share * bytes / bytesPerMs };
}
