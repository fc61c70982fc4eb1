/** An actor that adds arrays with others by the network of its transport. */

import type { ActorFactory, ActorSpec } from "../../../../actors/mod.ts";

export type AdderMessage =
  /** Asks for sums of arrays, given in this order; they are told when all are there. */
  | {
    readonly type: "Add";
    readonly parts: readonly { group: number; member: number; nth: number; length: number }[];
  }
  | { readonly type: "Sums"; readonly at: number; readonly sums: Float32Array };

export const ADDER: ActorSpec<undefined, AdderMessage> = {
  module: import.meta.url,
  export: "adder",
};

/** What a member gives: numbers of all sizes, whose sums depend on their order. */
export function addendOf(group: number, member: number, nth: number, length: number) {
  let state = 1 + group + 31 * member + 1009 * nth;
  return Float32Array.from({ length }, () => {
    state = (state * 16807) % 2147483647;
    return (state / 2147483647 - 0.5) * 10 ** (state % 7);
  });
}

export const adder: ActorFactory<undefined, AdderMessage> = (ctx) => {
  let sums: Float32Array[] = [], missing = 0;
  let reply: (sums: readonly Float32Array[]) => void;
  return {
    Add({ parts }) {
      reply = ctx.deferReply();
      sums = [];
      missing = parts.length;
      for (const [at, { group, member, nth, length }] of parts.entries()) {
        const values = addendOf(group, member, nth, length);
        ctx.allReduce({ group, member, values }, (sums) => ({ type: "Sums", at, sums }));
      }
      if (missing === 0) reply([]);
    },
    Sums(message) {
      sums[message.at] = message.sums;
      if (--missing === 0) reply(sums);
    },
  };
};
