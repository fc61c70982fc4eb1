/**
 * Who sent what to whom in a step: it follows from the names of the actions.
 *
 * @module
 */

import { type Action, formatAction } from "../../../schedules/mod.ts";
import type { Span } from "./span.ts";

/** The output of an action is the input of one on another worker. */
export interface Flow {
  /** What gave it. */
  readonly from: Span;
  /** What needed it. */
  readonly to: Span;
}

/** What an action gives: an activation or a gradient, of a stage and a micro-batch. */
const outputOf = (action: Action): string =>
  formatAction({ ...action, kind: action.kind === "F" ? "F" : "B" });

/** The outputs that an action takes, any of which may be missing as the other form was sent. */
function inputsOf({ half, ...action }: Action): string[] {
  const { kind, stage } = action;
  if (kind === "W" || kind === "R") return [];
  if (kind === "F") return stage === 0 ? [] : [outputOf({ ...action, stage: stage - 1 })];
  const whole: Action = { ...action, kind: "B", stage: stage + 1 };
  const halves = half === undefined ? [0, 1] as const : [half];
  return [whole, ...halves.map((half) => ({ ...whole, half }))].map(outputOf);
}

/** When the output of an action was sent, as far as a trace tells. */
export const sentAt = ({ sent, end }: Span): number => sent ?? end;

/**
 * The flows between the workers of one data-parallel replica, in the order in which they were taken.
 *
 * @param spans what they did, by worker and time.
 */
export function flowsOf(spans: readonly Span[]): Flow[] {
  const senders = new Map<string, Span>();
  for (const span of spans) {
    for (const action of span.actions) {
      if (action.kind !== "W" && action.kind !== "R") senders.set(outputOf(action), span);
    }
  }
  return spans.flatMap((to) => {
    const froms = new Set(to.actions.flatMap(inputsOf).map((input) => senders.get(input)));
    return [...froms]
      .filter((from) => from !== undefined && from.worker !== to.worker)
      .map((from): Flow => ({ from: from!, to }));
  });
}
