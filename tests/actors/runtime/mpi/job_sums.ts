/** Actors on the ranks of a job that add arrays by MPI, and a check of their sums. */

import assert from "node:assert/strict";
import {
  type ActorFactory,
  type ActorRef,
  type ActorSpec,
  type Transport,
} from "../../../../actors/runtime/mod.ts";
import { createSystem } from "../../../../actors/transports/system.ts";

type AdderMessage =
  /** Asks for sums of arrays, given in this order; the answer has all of them. */
  | {
    readonly type: "Add";
    readonly parts: readonly { group: number; member: number; nth: number; length: number }[];
  }
  | { readonly type: "Sums"; readonly at: number; readonly sums: Float32Array };

const ADDER: ActorSpec<undefined, AdderMessage> = { module: import.meta.url, export: "adder" };

/** The array of a member: numbers of all sizes, whose sums depend on their order. */
function addendOf(group: number, member: number, nth: number, length: number) {
  let state = 1 + group + 31 * member + 1009 * nth;
  return Float32Array.from({ length }, () => {
    state = (state * 16807) % 2147483647;
    return (state / 2147483647 - 0.5) * 10 ** (state % 7);
  });
}

/** Makes an actor that adds by the network of its transport. */
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

/** The ranks of the adders: two of them on rank 0, none on the last. */
export const RANKS = [0, 1, 2, 0];

/** The adder of each member. */
const GROUPS = [[0, 1, 2, 3], [2, 1, 0], [0, 3], [3, 1]];

/** The same groups by the ranks of their members. */
export const COLUMNS = GROUPS.map((members) => members.map((adder) => RANKS[adder]!));

/** Lengths of the arrays that each member gives, one after the other. */
const LENGTHS = [1, 20_000, 0, 333];

/** The arrays that an adder gives: each adder has another order of groups. */
function partsOf(adder: number) {
  const own = GROUPS.flatMap((members, group) =>
    members.flatMap((one, member) => one === adder ? [{ group, member }] : [])
  );
  if (adder % 2 === 1) own.reverse();
  return LENGTHS.flatMap((length, nth) => own.map((one) => ({ ...one, nth, length })));
}

/** Lets all adders add, checks all sums, and leaves some sums unfinished. */
export async function addOnce(transport: Transport): Promise<void> {
  await using system = createSystem({ transport, onDeadLetter: () => {}, stopGraceMs: 30_000 });
  const adders = RANKS.map((_, n): ActorRef<AdderMessage> =>
    system.spawn(ADDER, undefined, { id: `adder ${n}`, isolate: "mpi" })
  );
  const add = (n: number, parts: ReturnType<typeof partsOf>) =>
    system.ask<AdderMessage, Float32Array[]>(adders[n]!, { type: "Add", parts });
  const sums = await Promise.all(adders.map((_, n) => add(n, partsOf(n))));
  for (const [group, members] of GROUPS.entries()) {
    for (const [nth, length] of LENGTHS.entries()) {
      const found = members.map((n) => {
        const at = partsOf(n).findIndex((one) => one.group === group && one.nth === nth);
        return sums[n]![at]!;
      });
      for (const one of found) assert.deepEqual(bitsOf(one), bitsOf(found[0]!));
      assertClose(found[0]!, members.map((_, member) => addendOf(group, member, nth, length)));
    }
  }
  // Rank 1 is ahead of rank 2 by two sums of other lengths than the next ones.
  const ahead = [5, 6].map((length, i) => ({ group: 1, member: 1, nth: 9 + i, length }));
  add(1, ahead).catch(() => {});
  // Once this is answered, the sums before it are on their way.
  await system.ask(adders[1]!, { type: "Add", parts: [] });
}

const bitsOf = (values: Float32Array) => new Uint32Array(values.slice().buffer);

/** Allows (p − 1) roundings, each of a partial sum that is at most the sum of sizes. */
function assertClose(sums: Float32Array, addends: readonly Float32Array[]): void {
  assert.equal(sums.length, addends[0]!.length);
  for (const [i, sum] of sums.entries()) {
    const all = addends.map((one) => one[i]!), sizes = all.reduce((a, b) => a + Math.abs(b), 0);
    const exact = all.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum - exact) <= (all.length - 1) * 2 ** -24 * sizes * (1 + 1e-6));
  }
}
