/** Messages between workers: they take turns where they share a channel. */

import type { Link, Network } from "./model.ts";

/** When a message has been sent, and when it arrives. */
interface Passage {
  readonly sentMs: number;
  readonly arrivesMs: number;
}

/** The channels of a network, and until when each is taken. */
export class Channels {
  readonly #network: Network | undefined;
  readonly #workers: number;
  readonly #free = new Map<number, number>();

  constructor(network: Network | undefined, workers: number) {
    this.#network = network;
    this.#workers = workers;
  }

  /**
   * A message leaves for another worker, after all that left over its channel before it.
   *
   * @param latencyFactor what its latency is multiplied by.
   */
  send(now: number, from: number, to: number, bytes: number, latencyFactor: number): Passage {
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

  /** The number of a channel: first those of pairs, then of workers, then of nodes. */
  #channel(from: number, to: number, isLocal: boolean): number {
    const { sharing = "pair" } = this.#network ?? {}, workers = this.#workers;
    if (sharing === "pair") return from * workers + to;
    const ofWorker = workers * workers + from;
    return sharing === "worker" || isLocal ? ofWorker : -1 - this.#node(from);
  }
}

/** What an all-reduce of some bytes takes on its way: rounds of latency, and bytes of each rank. */
interface ReduceCost {
  readonly latencyMs: number;
  readonly transferMs: number;
}

/**
 * The two halves of an all-reduce, reduce-scatter and all-gather, cost the same. With p ranks, c the
 * largest power of two up to p, and n bytes, each half costs: `direct` α + (p−1)/p·nβ, `ring`
 * (p−1)α + (p−1)/p·nβ, `rabenseifner` log₂c·α + (c−1)/c·nβ, and α + nβ more where p is not c.
 */
export function reduceHalf(
  algorithm: "direct" | "ring" | "rabenseifner",
  ranks: number,
  bytes: number,
  { latencyMs, bytesPerMs = Infinity }: Link,
): ReduceCost {
  if (ranks === 1) return { latencyMs: 0, transferMs: 0 };
  const core = 2 ** Math.floor(Math.log2(ranks)), fold = ranks === core ? 0 : 1;
  const [rounds, share] = {
    direct: [1, (ranks - 1) / ranks] as const,
    ring: [ranks - 1, (ranks - 1) / ranks] as const,
    rabenseifner: [Math.log2(core) + fold, (core - 1) / core + fold] as const,
  }[algorithm];
  return { latencyMs: rounds * latencyMs, transferMs: share * bytes / bytesPerMs };
}
