/**
 * What befell a run, as a page shows it.
 *
 * @module
 */

import type { EventView } from "./view.ts";

/** What is told of it. */
type Told =
  | { readonly type: "failure"; step: number; time: number; actor: string; reason: string }
  | { readonly type: "checkpoint" | "resumed"; step: number; time: number };

/**
 * Makes the view of an event.
 *
 * @param text what there is to say of one that has no reason.
 */
export function eventView(event: Told, text = ""): EventView {
  const { type: kind, step, time } = event;
  if (event.type !== "failure") return { kind, step, time, text };
  const [number] = /\d+$/.exec(event.actor) ?? [];
  return {
    ...{ kind, step, time, text: event.reason },
    ...number !== undefined && { worker: Number(number) },
  };
}
