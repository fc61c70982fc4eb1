/**
 * A scenario for `troupe explore` that comes to no end.
 *
 * @module
 */

import type { ActorFactory } from "../../actors/runtime/mod.ts";
import type { Scenario } from "../../testing.ts";

type Question = { readonly type: "Why" };

/** Takes over its answer and never gives it. */
export const mute: ActorFactory<undefined, Question> = (ctx) => ({
  Why: () => void ctx.deferReply(),
});

const module = import.meta.url;

/** Asks who does not answer. */
export const scenario: Scenario<unknown> = ({ system }) => {
  const to = system.spawn<undefined, Question>({ module, export: "mute" }, undefined, {
    id: "mute",
  });
  return system.ask<Question, unknown>(to, { type: "Why" }, { timeoutMs: Infinity });
};
