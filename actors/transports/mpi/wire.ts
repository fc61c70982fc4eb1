/**
 * What isolates say to each other over a connection that goes from one to the other.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { JobRefusal, type Mpi } from "./library.ts";

/** A place that messages are for: an isolate, or, as 0, what rules the isolates of a rank. */
export interface Address {
  readonly rank: number;
  readonly isolate: number;
}

/** The number of what rules the isolates of a rank: on rank 0 the root. */
export const AGENT = 0;

/** A message on its way from one rank to another, as bytes. */
export interface Packet {
  readonly to: Address;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/** What moves when a packet is handed from thread to thread. */
export const movedOf = ({ body, buffers }: Packet): ArrayBuffer[] => [
  ...new Set([body.buffer, ...buffers.map(({ buffer }) => buffer)]),
];

/** The values of all ranks, in order; each is what JSON can say. Every rank calls it. */
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

/** What a rank says of itself, by name. */
export type JobFacts = Readonly<Record<string, string>>;

/** Characters of a value that are told. */
const SHOWN_MAX = 100;

/**
 * Compares the facts of all ranks; every rank calls it. Their hashes tell that they are equal, so
 * many ranks have little to gather.
 *
 * @throws {JobRefusal} naming the first that differs, two ranks and their values.
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
    throw new JobRefusal(
      `Cannot join the job: ${name} must be the same on all ranks, received ${
        shown(first!.get(name))
      } on rank 0 and ${shown(other.get(name))} on rank ${i + 1}`,
    );
  }
}

const shown = (value: string | undefined) => value?.slice(0, SHOWN_MAX) ?? "none";

/** Where an isolate that has invited another can be reached. */
export interface InvitationAddress extends Address {
  /** Which of its invitations it is. */
  readonly invitation: number;
}

/** What isolates say to each other. */
export type PeerFrame =
  /** The receiver of the connection is there. */
  | { readonly kind: "connected"; readonly from: Address; readonly invitation: number }
  | { readonly kind: "frame"; readonly from: number; readonly frame: unknown }
  /** Nothing more comes. */
  | { readonly kind: "end"; readonly from: number };
