/** Sums over three ranks: rank 0 asks for them and looks at them, the others serve. */

import assert from "node:assert/strict";
import { print } from "../../../../console/print.ts";
import { type ActorRef, createSystem } from "../../../../actors/mod.ts";
import { type Job, openJob } from "../../../../actors/runtime/transports/mpi/job.ts";
import { mpiTransport } from "../../../../actors/runtime/transports/mpi/mpi_transport.ts";
import { addendOf, ADDER, type AdderMessage } from "./adder.ts";

/** Where the adders live: two of them on rank 0. */
const RANKS = [0, 1, 2, 0];

/** The adder of each member. */
const GROUPS = [[0, 1, 2, 3], [2, 1, 0], [0, 3], [3, 1]];

/** Lengths of the arrays that each member gives, one after the other. */
const LENGTHS = [1, 70_000, 0, 333];

/** What an adder gives: its groups in an order of its own, their arrays in that of all. */
function partsOf(adder: number) {
  const own = GROUPS.flatMap((members, group) =>
    members.flatMap((one, member) => one === adder ? [{ group, member }] : [])
  );
  if (adder % 2 === 1) own.reverse();
  return LENGTHS.flatMap((length, nth) => own.map((one) => ({ ...one, nth, length })));
}

/** Has all add, looks at all sums, and leaves some half-begun. */
async function addOnce(job: Job): Promise<void> {
  const groups = GROUPS.map((members) => members.map((adder) => RANKS[adder]!));
  const transport = mpiTransport(job, { rankOf: (nth) => RANKS[nth]!, groups });
  await using system = createSystem({ transport, onDeadLetter: () => {} });
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
  const begun = add(1, ahead).catch(() => {});
  // What it has sent before its answer to this is on its way.
  await system.ask(adders[1]!, { type: "Add", parts: [] });
  void begun;
}

const bitsOf = (values: Float32Array) => new Uint32Array(values.slice().buffer);

/** (p − 1) roundings, each of a partial sum that is at most the sum of sizes. */
function assertClose(sums: Float32Array, addends: readonly Float32Array[]): void {
  assert.equal(sums.length, addends[0]!.length);
  for (const [i, sum] of sums.entries()) {
    const all = addends.map((one) => one[i]!), sizes = all.reduce((a, b) => a + Math.abs(b), 0);
    const exact = all.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum - exact) <= (all.length - 1) * 2 ** -24 * sizes * (1 + 1e-6));
  }
}

const job = await openJob();
if (job.rank === 0) {
  await addOnce(job);
  await addOnce(job);
  await job.root.close();
  print("all sums were right");
} else await job.serve();
Deno.exit(0);
