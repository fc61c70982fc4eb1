/** What each action of a workload takes and waits for, in tables that a search reads millions of times. */

import type { Action } from "../actions/action.ts";
import { KIND, KINDS } from "../actions/action_list.ts";
import { Dependencies } from "../execution/dependencies.ts";
import type { Workload } from "./workload.ts";

/** The kinds of a step whose backwards are all split, which is never slower. */
const SPLIT_KINDS = [KIND.F, KIND.I, KIND.W] as const;

/** The kinds of actions that have a number. */
export const ACTION_KINDS = SPLIT_KINDS.length;

/** The place of F among the kinds, of I and of W. */
export const SPLIT = { F: 0, I: 1, W: 2 } as const;

/**
 * The actions of a workload by number, `(stage * microBatches + microBatch) * ACTION_KINDS + kind`,
 * with all backwards split and no micro-batch in slices. -1 stands for none.
 */
export interface ActionTables {
  /** The number of an action. */
  codeOf(action: Action): number;
  /** The plain action of a number. */
  actionOf(code: number): Action;
  /** How long each takes. */
  readonly durations: Float64Array;
  /** The most inputs of an action: its forward, the gradient from above, and those of skip edges. */
  readonly width: number;
  /** The actions that each waits for, at index `code * width` and after. */
  readonly inputs: Int32Array;
  /** The time that each of these inputs is on its way. */
  readonly sends: Float64Array;
  /** The worker of each. */
  readonly workers: Int32Array;
  /** Another worker that may wait for what each gives. */
  readonly waiting: Int32Array;
  /** The copy of the stage that each belongs to. */
  readonly copies: Int32Array;
}

/** Works the tables out. */
export function actionTables(load: Workload): ActionTables {
  const { stages, microBatches, replicaOf, times: { durations, send } } = load;
  const size = stages * microBatches * ACTION_KINDS;
  const dependencies = new Dependencies(load);
  const partsOf = (code: number) => {
    const cell = Math.floor(code / ACTION_KINDS);
    const kind = SPLIT_KINDS[code % ACTION_KINDS] ?? KIND.F;
    return [kind, Math.floor(cell / microBatches), cell % microBatches] as const;
  };
  let width = 1;
  for (let code = 0; code < size; code++) {
    width = Math.max(width, dependencies.inputsOf(...partsOf(code)));
  }
  const tables = {
    durations: new Float64Array(size),
    width,
    inputs: new Int32Array(size * width).fill(-1),
    sends: new Float64Array(size * width),
    workers: new Int32Array(size),
    waiting: new Int32Array(size),
    copies: new Int32Array(size),
  };
  const givers = new Int32Array(dependencies.outputCount).fill(-1);
  for (let code = 0; code < size; code++) {
    const count = dependencies.outputsOf(...partsOf(code));
    for (let i = 0; i < count; i++) givers[dependencies.outputs[i] as number] = code;
  }
  for (let code = 0; code < size; code++) {
    const [kind, stage, microBatch] = partsOf(code);
    tables.durations[code] = durations[kind]?.[stage] as number;
    tables.workers[code] = dependencies.hostOf(stage, microBatch);
    tables.waiting[code] = dependencies.waiting(kind, stage, microBatch);
    tables.copies[code] = (replicaOf[microBatch] as number) * stages + stage;
    const count = dependencies.inputsOf(kind, stage, microBatch);
    for (let i = 0; i < count; i++) {
      const edge = dependencies.edges[i] as number;
      tables.inputs[code * width + i] = givers[dependencies.inputs[i] as number] as number;
      tables.sends[code * width + i] = edge < 0 ? 0 : send[edge] as number;
    }
  }
  return {
    ...tables,
    codeOf: ({ kind, stage, microBatch }) =>
      (stage * microBatches + microBatch) * ACTION_KINDS +
      SPLIT_KINDS.findIndex((each) => each === KIND[kind]),
    actionOf(code) {
      const [kind, stage, microBatch] = partsOf(code);
      return { kind: KINDS[kind] ?? "F", stage, microBatch };
    },
  };
}
