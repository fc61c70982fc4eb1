/**
 * Messages of the actor runtime: within an isolate and between Deno workers.
 *
 * @module
 */
// deno-lint-ignore-file determinism/no-ambient -- it measures real time

import type { ActorFactory } from "../actors/runtime/actor.ts";
import type { ActorRef, ActorSpec } from "../actors/runtime/types.ts";
import { createSystem } from "../actors/transports/system.ts";
import type { System } from "../actors/runtime/context.ts";
import { type Row, rowMaker } from "./report.ts";
import { interleave } from "./timing.ts";

/** The messages of a round. */
interface Game {
  /** Bytes of a tensor. */
  readonly bytes: number;
  /** True if tensors are moved; otherwise they are copied. */
  readonly isMoved: boolean;
  /** Tensors in flight. */
  readonly tensors: number;
  /** Passes of each tensor, an even number. */
  readonly passes: number;
}

/** Messages of a courier. */
type CourierMessage =
  /** Passes tensors back and forth; replies with the milliseconds. */
  | { readonly type: "Play"; readonly to: ActorRef<CourierMessage>; readonly game: Game }
  | Pass;

interface Pass extends Pick<Game, "isMoved"> {
  readonly type: "Pass";
  readonly tensor: Float32Array<ArrayBuffer>;
  readonly from: ActorRef<CourierMessage>;
  /** Passes that remain. */
  readonly left: number;
}

/** An actor that passes tensors back and forth with another one. */
const COURIER: ActorSpec<undefined, CourierMessage> = {
  module: import.meta.url,
  export: "courier",
};

/** Makes a courier. */
export const courier: ActorFactory<undefined, CourierMessage> = (ctx) => {
  let missing = 0, start = 0;
  let reply: (elapsedMs: number) => void;
  const pass = (to: ActorRef<CourierMessage>, sent: Omit<Pass, "type" | "from">) => {
    const transfer = sent.isMoved ? [sent.tensor.buffer] : [];
    ctx.send(to, { type: "Pass", from: ctx.self, ...sent }, { transfer });
  };
  return {
    Play({ to, game: { bytes, isMoved, tensors, passes } }) {
      reply = ctx.deferReply();
      missing = tensors;
      const made = Array.from({ length: tensors }, () => new Float32Array(bytes / 4));
      start = performance.now();
      for (const tensor of made) pass(to, { tensor, isMoved, left: passes - 1 });
    },
    Pass({ tensor, from, isMoved, left }) {
      if (left > 0) pass(from, { tensor, isMoved, left: left - 1 });
      else if (--missing === 0) reply(performance.now() - start);
    },
  };
};

const KILOBYTE = 1024;
const MEGABYTE = 1024 * KILOBYTE;
const ROUNDS = { rounds: 15, warmup: 3 } as const;

const ROUND_TRIPS: Game = { bytes: KILOBYTE, isMoved: false, tensors: 1, passes: 1000 };
const MOVED: Game = { bytes: MEGABYTE, isMoved: true, tensors: 8, passes: 100 };
const COPIED: Game = { ...MOVED, isMoved: false, passes: 20 };
const EMPTY: Game = { bytes: 0, isMoved: false, tensors: 64, passes: 1000 };

/** Spawns two couriers; returns a function that plays a game and returns its milliseconds. */
function openPair(system: System, isolate: "local" | "worker") {
  const [one, other] = [1, 2].map((n) =>
    system.spawn(COURIER, undefined, { id: `${isolate} courier ${n}`, isolate })
  ) as [ActorRef<CourierMessage>, ActorRef<CourierMessage>];
  return (game: Game) => () =>
    system.ask<CourierMessage, number>(one, { type: "Play", to: other, game });
}

/** Measures messages. */
export async function messagesBench(): Promise<Row[]> {
  await using system = createSystem();
  const between = openPair(system, "worker"), within = openPair(system, "local");
  const row = rowMaker(
    await interleave({
      roundTrips: between(ROUND_TRIPS),
      moved: between(MOVED),
      copied: between(COPIED),
      empty: between(EMPTY),
      local: within(EMPTY),
    }, ROUNDS),
  );
  const sent = ({ tensors, passes }: Game) => tensors * passes;
  const rate = (game: Game, ms: number) => sent(game) * game.bytes / 1e9 / (ms / 1000);
  const latency = (ms: number) => 2 * 1000 * ms / sent(ROUND_TRIPS);
  return [
    row("between workers: 1 KB, there and back", "µs", (ms) => latency(ms.roundTrips)),
    row("between workers: 1 MB, moved", "GB/s", (ms) => rate(MOVED, ms.moved), {
      target: { atLeast: 1 },
    }),
    row("between workers: 1 MB, copied", "GB/s", (ms) => rate(COPIED, ms.copied)),
    row("between workers: small messages", "k/s", (ms) => sent(EMPTY) / ms.empty),
    row("within an isolate: small messages", "k/s", (ms) => sent(EMPTY) / ms.local),
  ];
}
