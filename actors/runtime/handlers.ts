/**
 * What an actor is made of: a factory that returns a handler for each message.
 *
 * @module
 */

import type { Context } from "./context_api.ts";
import type { Message } from "./types.ts";

/** One handler for each message of a protocol; see {@linkcode Message}. */
export type Handlers<M extends Message> = {
  [K in M["type"]]: (message: Extract<M, { readonly type: K }>) => void | Promise<void>;
};

/** Makes the state of an actor, kept in its closure, and returns its handlers; see
 * {@linkcode ActorSpec}. */
export type ActorFactory<Init, M extends Message> = (
  ctx: Context<M>,
  init: Init,
) => Handlers<M> | Promise<Handlers<M>>;
