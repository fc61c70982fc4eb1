/**
 * An actor that computes while its array is added to that of another.
 *
 * @module
 */

// deno-lint-ignore-file determinism/no-ambient -- it measures real time

import process from "node:process";
import type { ActorFactory, ActorSpec } from "../../actors/mod.ts";

/** What an adder understands. */
export type AdderMessage =
  /** Asks how many multiplications take so many milliseconds. */
  | { readonly type: "Calibrate"; readonly ms: number }
  /** Asks for so many multiplications in one piece; the reply is the milliseconds of all. */
  | { readonly type: "Compute"; readonly count: number; readonly isAdding: boolean }
  /** Asks for the CPU time of its process, in milliseconds. */
  | { readonly type: "Cpu" }
  | { readonly type: "Sums"; readonly sums: Float32Array<ArrayBuffer> };

/** Elements of an array: 16 MB. */
const LENGTH = 2 ** 22;

/** How an adder is made: it is this member of group 0. */
export const ADDER: ActorSpec<number, AdderMessage> = { module: import.meta.url, export: "adder" };

/** Something that takes time and no memory. */
function multiply(count: number): number {
  let product = 1;
  for (let i = 0; i < count; i++) product *= 1.0000001;
  return product;
}

/** Makes an adder. */
export const adder: ActorFactory<number, AdderMessage> = (ctx, member) => {
  let values = new Float32Array(LENGTH), start = 0;
  let reply: (ms: number) => void;
  return {
    Calibrate({ ms }) {
      const count = 2 ** 22, rates: number[] = [];
      for (let i = 0; i < 20; i++) {
        const start = performance.now();
        multiply(count);
        rates.push(count / (performance.now() - start));
      }
      ctx.reply(Math.round(ms * Math.max(...rates)));
    },
    Compute({ count, isAdding }) {
      reply = ctx.deferReply();
      start = performance.now();
      if (isAdding) {
        ctx.allReduce({ group: 0, member, values }, (sums) => ({ type: "Sums", sums }));
      }
      if (count > 0) multiply(count);
      if (!isAdding) reply(performance.now() - start);
    },
    Sums({ sums }) {
      values = sums;
      reply(performance.now() - start);
    },
    Cpu() {
      const { user, system } = process.cpuUsage();
      ctx.reply((user + system) / 1000);
    },
  };
};
