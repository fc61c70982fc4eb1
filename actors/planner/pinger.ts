/**
 * Pingers: actors that measure round trips of a tensor between each other.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec } from "../runtime/mod.ts";

/** Messages of a pinger. */
export type PingerMessage =
  /** Starts round trips of a tensor; the reply is the milliseconds of each. */
  | {
    readonly type: "Play";
    readonly to: ActorRef<PingerMessage>;
    readonly bytes: number;
    readonly trips: number;
  }
  | {
    readonly type: "Ping";
    readonly tensor: Float32Array<ArrayBuffer>;
    readonly from: ActorRef<PingerMessage>;
  }
  | { readonly type: "Pong"; readonly tensor: Float32Array<ArrayBuffer> };

/** Spec of a pinger. */
export const PINGER: ActorSpec<undefined, PingerMessage> = {
  module: import.meta.url,
  export: "pinger",
};

/** Creates a pinger. */
export const pinger: ActorFactory<undefined, PingerMessage> = (ctx) => {
  let tensor = new Float32Array(), left = 0, times: number[] = [], start = 0;
  let to: ActorRef<PingerMessage>, reply: (times: readonly number[]) => void;
  const ping = () => {
    start = ctx.now();
    ctx.send(to, { type: "Ping", tensor, from: ctx.self }, { transfer: [tensor.buffer] });
  };
  return {
    Play(message) {
      ({ to, trips: left } = message);
      if (tensor.byteLength !== message.bytes) tensor = new Float32Array(message.bytes / 4).fill(1);
      times = [];
      reply = ctx.deferReply();
      ping();
    },
    Ping({ tensor, from }) {
      ctx.send(from, { type: "Pong", tensor }, { transfer: [tensor.buffer] });
    },
    Pong(message) {
      times.push(ctx.now() - start);
      tensor = message.tensor;
      if (--left > 0) ping();
      else reply(times);
    },
  };
};
