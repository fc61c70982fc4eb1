/**
 * What all ranks of a job must have in common, compared when they join.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { gatherValues } from "./doorbell/gather_values.ts";
import { JobRefusal } from "./job_refusal.ts";
import type { Mpi } from "./mpi.ts";

/** What a rank says of itself, by name. */
export type Facts = Readonly<Record<string, string>>;

/** Characters of a value that are told. */
const SHOWN_MAX = 100;

/**
 * Compares the facts of all ranks; every rank calls it. Their hashes tell that they are equal, so
 * many ranks have little to gather.
 *
 * @throws {JobRefusal} naming the first that differs, two ranks and their values.
 */
export function compareFacts(mpi: Pick<Mpi, "gather">, facts: Facts): void {
  const own = Object.entries(facts).sort(([a], [b]) => a < b ? -1 : 1);
  const hash = createHash("sha256").update(JSON.stringify(own)).digest("hex");
  const hashes = gatherValues(mpi, hash);
  if (hashes.every((one) => one === hashes[0])) return;
  const [first, ...others] = gatherValues(mpi, own).map((entries) => new Map(entries));
  for (const [i, other] of others.entries()) {
    const names = [...new Set([...first!.keys(), ...other.keys()])];
    const name = names.find((name) => first!.get(name) !== other.get(name));
    if (name === undefined) continue;
    throw new JobRefusal(
      `Cannot join the job: ${name} must be the same on all ranks, received ${
        shown(first!.get(name))
      } on rank 0 and ${shown(other.get(name))} on rank ${i + 1}`,
    );
  }
}

const shown = (value: string | undefined) => value?.slice(0, SHOWN_MAX) ?? "none";
