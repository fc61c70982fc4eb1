/**
 * Messages between isolates of a job, and comparisons between its ranks.
 *
 * @module
 */

import { createHash } from "node:crypto";
import type { EncodedFrame } from "../codec.ts";
import { JobRefusal, type Mpi } from "./library.ts";

/** The address of an isolate, or of the agent of a rank. */
export interface Address {
  readonly rank: number;
  readonly isolate: number;
}

/** Isolate number of the agent of a rank; on rank 0 it is also the root. */
export const AGENT = 0;

/** An encoded message to another isolate. */
export interface Packet extends EncodedFrame {
  readonly to: Address;
}

/** Returns the buffers that move when a packet is passed to another thread. */
export const movedOf = ({ body, buffers }: Packet): ArrayBuffer[] => [
  ...new Set([body.buffer, ...buffers.map(({ buffer }) => buffer)]),
];

/** Returns the values of all ranks, in order; values are JSON. Every rank calls it. */
export function gatherValues<T>(mpi: Pick<Mpi, "gather">, own: T): readonly T[] {
  const bytes = new TextEncoder().encode(JSON.stringify(own));
  const lengths = new Float64Array(
    mpi.gather(new Uint8Array(Float64Array.of(bytes.length).buffer)).buffer,
  );
  const width = Math.max(...lengths), padded = new Uint8Array(width);
  padded.set(bytes);
  const all = mpi.gather(padded);
  return Array.from(lengths, (length, rank) => {
    const at = rank * width;
    return JSON.parse(new TextDecoder().decode(all.subarray(at, at + length)));
  });
}

/** Properties of a rank, by name. */
export type JobFacts = Readonly<Record<string, string>>;

/** Maximum characters of a value in a message. */
const SHOWN_MAX = 100;

/**
 * Compares the facts of all ranks; every rank calls it. Ranks first exchange hashes, so equal facts
 * are cheap to compare on many ranks.
 *
 * @throws {JobRefusal} with the first fact that differs, two ranks and their values.
 */
export function compareFacts(mpi: Pick<Mpi, "gather">, facts: JobFacts): void {
  const own = Object.entries(facts).sort(([a], [b]) => a < b ? -1 : 1);
  const hash = createHash("sha256").update(JSON.stringify(own)).digest("hex");
  const hashes = gatherValues(mpi, hash);
  if (hashes.every((one) => one === hashes[0])) return;
  const [first, ...others] = gatherValues(mpi, own).map((entries) => new Map(entries));
  for (const [i, other] of others.entries()) {
    const names = [...new Set([...first!.keys(), ...other.keys()])];
    const name = names.find((name) => first!.get(name) !== other.get(name));
    if (name === undefined) continue;
    const [one, two] = [first!, other].map((facts) =>
      facts.get(name)?.slice(0, SHOWN_MAX) ?? "none"
    );
    const received = `${one} on rank 0 and ${two} on rank ${i + 1}`;
    const must = `${name} must be the same on all ranks`;
    throw new JobRefusal(`Cannot join the job: ${must}, received ${received}`);
  }
}

/** The address of an isolate that has invited another one to connect. */
export interface InvitationAddress extends Address {
  /** Number of the invitation. */
  readonly invitation: number;
}

/** Messages over a connection between isolates. */
export type PeerFrame =
  /** The receiver has connected. */
  | { readonly kind: "connected"; readonly from: Address; readonly invitation: number }
  | { readonly kind: "frame"; readonly from: number; readonly frame: unknown }
  /** No more frames follow. */
  | { readonly kind: "end"; readonly from: number };
