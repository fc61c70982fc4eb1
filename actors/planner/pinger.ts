/**
 * An actor that sends a tensor to another of its kind and back, again and again.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec } from "../runtime/mod.ts";

/** What a pinger understands. */
export type PingerMessage =
  /** Asks for round trips of a tensor, one after the other; the reply is the time of each, in
   * milliseconds. */
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

/** How a pinger is made. */
export const PINGER: ActorSpec<undefined, PingerMessage> = {
  module: import.meta.url,
  export: "pinger",
};

/** Makes a pinger. */
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
