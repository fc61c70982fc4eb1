/** What each action of a workload takes and waits for, in tables that a search reads millions of times. */

import type { Action } from "../actions/action.ts";
import { KIND, KINDS } from "../actions/action_list.ts";
import type { Workload } from "./workload.ts";

/**
 * The actions of a workload by number, `(stage * microBatches + microBatch) * 4 + kind`. -1 stands
 * for none.
 */
export interface ActionTables {
  /** The number of an action. */
  codeOf(action: Action): number;
  /** The plain action of a number. */
  actionOf(code: number): Action;
  /** How long each takes. */
  readonly durations: Float64Array;
  /** For a backward, the forward that must have run before. */
  readonly forwards: Int32Array;
  /** The action whose output is the input. */
  readonly sources: Int32Array;
  /** The action that gives the input where the source does not run: a backward that is whole. */
  readonly otherSources: Int32Array;
  /** The time that the input is on its way. */
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
  const { stages, microBatches, hosts, replicaOf, times: { durations, send } } = load;
  const size = stages * microBatches * KINDS.length;
  const none = () => new Int32Array(size).fill(-1);
  const tables = {
    durations: new Float64Array(size),
    forwards: none(),
    sources: none(),
    otherSources: none(),
    sends: new Float64Array(size),
    workers: none(),
    waiting: none(),
    copies: none(),
  };
  const codeOf = (kind: number, stage: number, microBatch: number) =>
    (stage * microBatches + microBatch) * KINDS.length + kind;
  const copyOf = (stage: number, microBatch: number) =>
    (replicaOf[microBatch] as number) * stages + stage;
  for (let code = 0; code < size; code++) {
    const kind = code % KINDS.length, place = Math.floor(code / KINDS.length);
    const stage = Math.floor(place / microBatches), microBatch = place % microBatches;
    const worker = hosts[copyOf(stage, microBatch)] as number;
    tables.durations[code] = durations[kind]?.[stage] as number;
    tables.workers[code] = worker;
    tables.copies[code] = copyOf(stage, microBatch);
    if (kind === KIND.W) {
      tables.sources[code] = codeOf(KIND.I, stage, microBatch);
      continue;
    }
    const isForward = kind === KIND.F;
    if (!isForward) tables.forwards[code] = codeOf(KIND.F, stage, microBatch);
    const from = isForward ? stage - 1 : stage + 1, to = isForward ? stage + 1 : stage - 1;
    if (from === stages) tables.sources[code] = codeOf(KIND.F, stage, microBatch);
    else if (from >= 0) {
      tables.sources[code] = codeOf(isForward ? KIND.F : KIND.I, from, microBatch);
      if (!isForward) tables.otherSources[code] = codeOf(KIND.B, from, microBatch);
      const isLocal = hosts[copyOf(from, microBatch)] === worker;
      tables.sends[code] = isLocal ? 0 : send[Math.min(from, stage)] as number;
    }
    const next = to < 0 || to === stages ? -1 : hosts[copyOf(to, microBatch)] as number;
    tables.waiting[code] = next === worker ? -1 : next;
  }
  return {
    ...tables,
    codeOf: ({ kind, stage, microBatch }) => codeOf(KIND[kind], stage, microBatch),
    actionOf: (code) => ({
      kind: KINDS[code % KINDS.length] ?? "F",
      stage: Math.floor(code / (KINDS.length * microBatches)),
      microBatch: Math.floor(code / KINDS.length) % microBatches,
    }),
  };
}
