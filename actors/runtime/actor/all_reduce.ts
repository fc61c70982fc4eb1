/**
 * Sums over actors of several isolates, by the means of their transport.
 *
 * @module
 */

import { describeFailure } from "../failure.ts";
import type { Isolate } from "../isolate/isolate.ts";
import { assertMessage } from "../messages.ts";
import type { Addend } from "../transports/transport.ts";
import type { Message } from "../types.ts";
import type { Actor } from "./actor.ts";
import { admit, fail } from "./lifecycle.ts";

/** Adds an array to those of others. See {@linkcode Context.allReduce}. */
export function allReduce(
  isolate: Isolate,
  actor: Actor,
  addend: Addend,
  as: (sums: Addend["values"]) => Message,
): void {
  const { ref } = actor, { collectives } = isolate.env;
  if (!collectives) {
    throw new TypeError(
      `Cannot add arrays: the isolate of "${ref.id}" must be one of a transport with collectives`,
    );
  }
  collectives.allReduce(addend, (sums) => {
    if (actor.state === "stopping" || actor.isDraining) return;
    try {
      const message = as(sums);
      assertMessage("tell of sums", message);
      admit(isolate, actor, { lane: "data", from: ref, message });
    } catch (error) {
      fail(isolate, actor, describeFailure(ref.id, "throw", error, "sums"));
    }
  });
}
