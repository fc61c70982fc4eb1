/**
 * Sums over actors of several isolates, by the means of their transport.
 *
 * @module
 */

import type { Isolate } from "../isolate/isolate.ts";
import type { Addend } from "../transports/transport.ts";
import type { Message } from "../types.ts";
import type { Actor } from "./actor.ts";
import { tell } from "./lifecycle.ts";

/** Adds an array to those of others. See {@linkcode Context.allReduce}. */
export function allReduce(
  isolate: Isolate,
  actor: Actor,
  addend: Addend,
  as: (sums: Addend["values"]) => Message,
): void {
  const { ref: from } = actor, { collectives } = isolate.env;
  if (!collectives) {
    throw new TypeError(
      `Cannot add arrays: the isolate of "${from.id}" must be one of a transport with collectives`,
    );
  }
  collectives.allReduce(addend, (sums) => {
    tell(isolate, actor, "sums", () => ({ lane: "data", from, message: as(sums) }));
  });
}
