/**
 * An actor that computes while its array is added to that of another.
 *
 * @module
 */
// deno-lint-ignore-file determinism/no-ambient -- it measures real time

import process from "node:process";
import type { ActorFactory, ActorSpec } from "../actors/mod.ts";

/** What an adder understands. */
export type AdderMessage =
  /** Asks how many multiplications take so many milliseconds. */
  | { readonly type: "Calibrate"; readonly ms: number }
  /** Asks for so many multiplications in one piece; the reply is a {@linkcode Computed}. */
  | { readonly type: "Compute"; readonly count: number; readonly isAdding: boolean }
  /** Asks for the CPU time of its process, in milliseconds. */
  | { readonly type: "Cpu" }
  | { readonly type: "Sums"; readonly sums: Float32Array<ArrayBuffer> };

/** What a computation took, in milliseconds. */
export interface Computed {
  /** From the beginning to the end of all. */
  readonly ms: number;
  /** Of that, from the end of the computing to the sums. */
  readonly waitMs: number;
}

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
  let values = new Float32Array(LENGTH), start = 0, computed = 0;
  let reply: (computed: Computed) => void;
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
      computed = performance.now();
      if (!isAdding) reply({ ms: computed - start, waitMs: 0 });
    },
    Sums({ sums }) {
      values = sums;
      const now = performance.now();
      reply({ ms: now - start, waitMs: now - computed });
    },
    Cpu() {
      const { user, system } = process.cpuUsage();
      ctx.reply((user + system) / 1000);
    },
  };
};
