/**
 * Messages of the actor runtime: within an isolate and between Deno workers.
 *
 * @module
 */

import { type ActorRef, createSystem, type System } from "../actors/mod.ts";
import { COURIER, type CourierMessage } from "./courier.ts";
import type { Row } from "./report.ts";
import { interleave, type Spread, spreadOf } from "./timing.ts";

const KILOBYTE = 1024;
const MEGABYTE = 1024 * KILOBYTE;
const ROUNDS = { rounds: 15, warmup: 3 } as const;

/** What a round passes. */
type Game = Omit<Extract<CourierMessage, { type: "Play" }>, "type" | "to">;

const ROUND_TRIPS: Game = { bytes: KILOBYTE, isMoved: false, tensors: 1, passes: 1000 };
const MOVED: Game = { bytes: MEGABYTE, isMoved: true, tensors: 8, passes: 100 };
const COPIED: Game = { ...MOVED, isMoved: false, passes: 20 };
const EMPTY: Game = { bytes: 0, isMoved: false, tensors: 64, passes: 1000 };

/** Two couriers; what is returned plays a game and says how many milliseconds it took. */
function openPair(system: System, isolate: "local" | "worker") {
  const [one, other] = [1, 2].map((n) =>
    system.spawn(COURIER, undefined, { id: `${isolate} courier ${n}`, isolate })
  ) as [ActorRef<CourierMessage>, ActorRef<CourierMessage>];
  return (game: Game) => () =>
    system.ask<CourierMessage, number>(one, { type: "Play", to: other, ...game });
}

/** Measures messages. */
export async function messagesBench(): Promise<Row[]> {
  await using system = createSystem();
  const between = openPair(system, "worker"), within = openPair(system, "local");
  const rounds = await interleave({
    roundTrips: between(ROUND_TRIPS),
    moved: between(MOVED),
    copied: between(COPIED),
    empty: between(EMPTY),
    local: within(EMPTY),
  }, ROUNDS);
  const sent = ({ tensors, passes }: Game) => tensors * passes;
  const gigabytes = (game: Game) => sent(game) * game.bytes / 1e9;
  const row = (name: string, unit: string, measured: Spread) => ({ name, unit, measured });
  return [
    row(
      "between workers: 1 KB, there and back",
      "µs",
      spreadOf(rounds, ({ roundTrips }) => 2 * 1000 * roundTrips / sent(ROUND_TRIPS)),
    ),
    {
      ...row(
        "between workers: 1 MB, moved",
        "GB/s",
        spreadOf(rounds, ({ moved }) => gigabytes(MOVED) / (moved / 1000)),
      ),
      target: { atLeast: 1 },
    },
    row(
      "between workers: 1 MB, copied",
      "GB/s",
      spreadOf(rounds, ({ copied }) => gigabytes(COPIED) / (copied / 1000)),
    ),
    row(
      "between workers: small messages",
      "k/s",
      spreadOf(rounds, ({ empty }) => sent(EMPTY) / empty),
    ),
    row(
      "within an isolate: small messages",
      "k/s",
      spreadOf(rounds, ({ local }) => sent(EMPTY) / local),
    ),
  ];
}
