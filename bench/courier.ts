/**
 * An actor that passes tensors to and fro with another of its kind.
 *
 * @module
 */
// deno-lint-ignore-file determinism/no-ambient -- it measures real time

import type { ActorFactory, ActorRef, ActorSpec } from "../actors/mod.ts";

/** What a courier understands. */
export type CourierMessage =
  /** Asks for tensors to be passed to and fro; the reply is the milliseconds that it took. */
  | {
    readonly type: "Play";
    readonly to: ActorRef<CourierMessage>;
    /** Bytes of a tensor. */
    readonly bytes: number;
    /** Whether the tensors are moved or copied. */
    readonly isMoved: boolean;
    /** Tensors under way at once. */
    readonly tensors: number;
    /** How often each of them is passed, an even number. */
    readonly passes: number;
  }
  | {
    readonly type: "Pass";
    readonly tensor: Float32Array<ArrayBuffer>;
    readonly from: ActorRef<CourierMessage>;
    readonly isMoved: boolean;
    /** Passes after this one. */
    readonly passes: number;
  };

/** How a courier is made in any isolate. */
export const COURIER: ActorSpec<undefined, CourierMessage> = {
  module: import.meta.url,
  export: "courier",
};

/** Makes a courier. */
export const courier: ActorFactory<undefined, CourierMessage> = (ctx) => {
  let missing = 0, start = 0;
  let reply: (elapsedMs: number) => void;
  const pass = (
    to: ActorRef<CourierMessage>,
    sent: Pick<Extract<CourierMessage, { type: "Pass" }>, "tensor" | "isMoved" | "passes">,
  ) => {
    const transfer = sent.isMoved ? [sent.tensor.buffer] : [];
    ctx.send(to, { type: "Pass", from: ctx.self, ...sent }, { transfer });
  };
  return {
    Play({ to, bytes, isMoved, tensors, passes }) {
      reply = ctx.deferReply();
      missing = tensors;
      const made = Array.from({ length: tensors }, () => new Float32Array(bytes / 4));
      start = performance.now();
      for (const tensor of made) pass(to, { tensor, isMoved, passes: passes - 1 });
    },
    Pass({ tensor, from, isMoved, passes }) {
      if (passes > 0) pass(from, { tensor, isMoved, passes: passes - 1 });
      else if (--missing === 0) reply(performance.now() - start);
    },
  };
};
