/**
 * Who is where in a job: what travels between ranks says for whom it is.
 *
 * @module
 */

/** A place that messages are for: an isolate, or, as 0, what rules the isolates of a rank. */
export interface Address {
  readonly rank: number;
  readonly isolate: number;
}

/** The number of what rules the isolates of a rank: on rank 0 the root. */
export const RULER = 0;

/** A message on its way from one rank to another, as bytes. */
export interface Parcel {
  readonly to: Address;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly buffers: readonly Uint8Array<ArrayBuffer>[];
}

/** What moves when a parcel is handed from thread to thread. */
export const movedOf = ({ body, buffers }: Parcel): ArrayBuffer[] => [
  ...new Set([body.buffer, ...buffers.map(({ buffer }) => buffer)]),
];
