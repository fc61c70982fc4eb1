/** Orders by slot: a paper's table of unit time slots becomes the order of a list. */

import type { Action } from "../actions/action.ts";

/** An action and its slot in the table of the paper. */
export type SlottedAction = readonly [slot: number, action: Action];

/** The actions of one worker in the order of their slots. */
export function inSlotOrder(slotted: SlottedAction[]): Action[] {
  return slotted.sort(([a], [b]) => a - b).map(([, action]) => action);
}
