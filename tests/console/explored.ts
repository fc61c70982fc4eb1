/**
 * Scenarios for `troupe explore`: one fails in some orders, another never ends.
 *
 * @module
 */

import type { ActorFactory, ActorRef } from "../../actors/runtime/mod.ts";
import type { Scenario } from "../../testing.ts";

type Note = { readonly type: "Note"; readonly n: number };

/** Keeps messages in the order of arrival. */
export const log: ActorFactory<undefined, Note> = (ctx) => {
  const notes: number[] = [];
  ctx.expose(() => notes);
  return { Note: ({ n }) => void notes.push(n) };
};

/** Sends its number when it is created. */
export const writer: ActorFactory<{ to: ActorRef<Note>; n: number }, never> = (ctx, { to, n }) => {
  ctx.send(to, { type: "Note", n });
  return {};
};

const module = import.meta.url;

/** Its invariant holds only if messages keep their order. */
export const scenario: Scenario<undefined> = async ({ system, idle, invariant }) => {
  invariant("notes come in order", ({ state }) => {
    const notes = state<number[]>("log") ?? [];
    if (notes.some((n, i) => i > 0 && n < notes[i - 1]!)) return `they came as ${notes}`;
  });
  const to = system.spawn<undefined, Note>({ module, export: "log" }, undefined, { id: "log" });
  for (const n of [1, 2, 3]) {
    system.spawn({ module, export: "writer" }, { to, n }, { id: `writer-${n}` });
  }
  await idle();
};
