/**
 * The invariants of simulated training, checked after each message.
 *
 * @module
 */

import {
  type Action,
  type ActionKind,
  formatAction,
  parseAction,
  type Schedule,
} from "../../schedules/mod.ts";
import { endsBackward, parts, WHOLE } from "../../schedules/internal.ts";
import { UPDATE_POLICIES } from "../pipeline/step.ts";
import type { SupervisorView } from "../pipeline/supervisor.ts";
import type { WorkerView } from "../pipeline/worker.ts";
import type { EngineOptions } from "../run/engine.ts";
import type { View, World } from "../simulation/run.ts";
import { FakeStage } from "./fake_stage.ts";

/** The parts of actions, by name. */
const known = new Map<string, readonly Action[]>();

const partsOf = (name: string) => known.getOrInsertComputed(name, () => parts(parseAction(name)));

/** The actions of a worker since the pipe was empty: in one step, or without flushes in several. */
interface WorkerActions {
  readonly replica: number;
  readonly done: Set<string>;
  /** F without B or W, in micro-batches or slices. */
  stash: number;
  bucketsStepped: number;
}

/** The actions of all workers since the pipe was empty. */
interface PipeHistory {
  readonly actions: ReadonlyMap<string, WorkerActions>;
  /** Micro-batches that have entered stage 0, by replica. */
  readonly entered: number[];
  /** Micro-batches that have left stage 0 backward, by replica. */
  readonly left: number[];
}

function openHistory({ schedule, replicas }: EngineOptions): PipeHistory {
  const workers = Array.from({ length: replicas * schedule.workers }, (_, worker) => worker);
  return {
    entered: new Array(replicas).fill(0),
    left: new Array(replicas).fill(0),
    actions: new Map(workers.map((worker) => {
      const replica = Math.floor(worker / schedule.workers);
      return [`worker-${worker}`, { replica, done: new Set(), stash: 0, bucketsStepped: 0 }];
    })),
  };
}

/** Adds the invariants of a training run to a world. */
export function addInvariants<C>(world: World<C>, options: EngineOptions): void {
  const { schedule } = options, { slices = 1 } = schedule;
  const policy = UPDATE_POLICIES[schedule.updates], limit = policy.inFlight(schedule);
  let history = openHistory(options);
  world.invariant("each B after its F and once", (view) => checkAction(view, history, slices));
  world.invariant("F − B = stash", ({ actor, state }) => {
    const mine = history.actions.get(actor), worker = mine && state<WorkerView>(actor);
    if (!worker || worker.stash === mine.stash / slices) return;
    return `${actor} holds ${worker.stash} activations, its F − B is ${mine.stash / slices}`;
  });
  const overLimit = (counts: readonly number[], most: number, what: string) => {
    const here = counts.map((count, replica) => count - history.left[replica]!);
    const over = here.findIndex((count) => count > most);
    return over < 0 ? undefined : `replica ${over} has ${here[over]} ${what}, the limit is ${most}`;
  };
  world.invariant("in flight ≤ limit", () => overLimit(history.entered, limit, "in flight"));
  world.invariant("injected ≤ limit", ({ actor, state }) => {
    if (actor !== "supervisor") return;
    const { injected = [] } = state<SupervisorView>(actor) ?? {};
    return overLimit(injected, limit + policy.ahead(schedule), "injected");
  });
  const ended = openEndings();
  world.invariant("a step ends whole, with nothing left over", (view) => {
    const { actor, type } = view;
    if (type === "StepBucket") history.actions.get(actor)!.bucketsStepped++;
    const end = ended(view);
    if (!end) return;
    const problem = [...history.actions]
      .map(([id, mine]) => leftOver(view, id, mine, options, end.isCommitted)).find(Boolean);
    const ids = [...history.actions.keys()];
    history = openHistory(options);
    return problem ?? unequalCopies(view, ids);
  });
}

/** Detects that the pipe has run empty, and whether the step before was committed. */
function openEndings(): (view: View) => { readonly isCommitted: boolean } | undefined {
  let before: SupervisorView | undefined;
  return ({ actor, state }) => {
    if (actor !== "supervisor") return;
    const now = state<SupervisorView>(actor), last = before;
    before = now;
    const hasEnded = now?.state === "idle" && last &&
      ["stepping", "deciding", "ending", "draining"].includes(last.state);
    return hasEnded ? { isCommitted: last.isCommitted } : undefined;
  };
}

/** Counts an action of a worker, and checks its turn. */
function checkAction(
  { actor, type, name }: View,
  { actions, entered, left }: PipeHistory,
  slices: number,
): string | undefined {
  const mine = actions.get(actor);
  if (!mine || type !== "Dispatch" || name === "") return;
  for (const part of partsOf(name)) {
    const problem = outOfTurn(part, mine.done, slices);
    if (problem) return problem;
    mine.done.add(formatAction(part));
    const { kind, stage, part: own = WHOLE } = part, isBackward = kind === "B" || kind === "I";
    if (kind === "F" && stage === 0 && own.index === 0) entered[mine.replica]!++;
    if (kind === "F") mine.stash++;
    else if (kind === "B" || kind === "W") mine.stash -= slices / own.count;
    if (stage === 0 && isBackward && endsBackward(part, slices)) left[mine.replica]!++;
  }
}

/** Returns the reason that forbids an action after the done ones. */
function outOfTurn(
  part: Action,
  done: ReadonlySet<string>,
  slices: number,
): string | undefined {
  const { part: own = WHOLE, ...whole } = part, { kind } = whole, name = formatAction(part);
  const has = (other: Partial<Action>) => done.has(formatAction({ ...whole, ...other }));
  const hasPart = (index: number) => has({ part: { ...own, index } });
  const forward = own.count === slices && part.part ? { part: own } : {};
  if (done.has(name)) return `${name} ran twice`;
  const wants = (before: ActionKind) =>
    has({ kind: before, ...forward }) ? undefined : `${name} ran without its ${before}`;
  const isFirst = `${name} ran first`;
  if (kind === "F") return own.index > 0 && !hasPart(own.index - 1) ? isFirst : undefined;
  if (kind === "W") return wants("I");
  // Slices run backward last slice first, parts of samples in order.
  const before = own.index + (slices > 1 ? 1 : -1), isKnown = before >= 0 && before < own.count;
  return isKnown && kind !== "R" && !hasPart(before) ? isFirst : wants("F");
}

/** Returns the problem of a worker after the pipe has run empty. */
function leftOver(
  { state, waiting }: View,
  id: string,
  mine: WorkerActions,
  { schedule }: EngineOptions,
  isCommitted: boolean,
): string | undefined {
  const worker = state<WorkerView>(id);
  if (!worker) return;
  const { stash, ready, copies } = worker, { isFlushed } = UPDATE_POLICIES[schedule.updates];
  if (worker.state !== "idle") return `${id} is still ${worker.state}`;
  if (stash + ready > 0) return `${id} keeps ${stash} activations and ${ready} inputs`;
  // Parts of an all-reduce that was given up are dropped when they come.
  if ((isCommitted || !isFlushed) && waiting(id) > 0) {
    return `${waiting(id)} messages wait for ${id}`;
  }
  const buckets = copies.reduce((sum, { kernels }) => sum + kernels.buckets.length, 0);
  const must = buckets * (isFlushed ? Number(isCommitted) : updatesOf(mine, schedule));
  const { bucketsStepped } = mine;
  return bucketsStepped === must ? undefined : `${id} stepped ${bucketsStepped} of ${must} buckets`;
}

/** Returns the number of updates that a worker without flushes must have made. */
function updatesOf({ done }: WorkerActions, { updates, microBatches }: Schedule): number {
  const backwards = [...done].filter((name) => name.includes("B")).length;
  return updates === "every-backward" ? backwards : backwards / microBatches;
}

/** Returns a problem if copies of a stage have different weights. */
function unequalCopies({ state }: View, ids: readonly string[]): string | undefined {
  const copies = ids.flatMap((id) => state<WorkerView>(id)?.copies ?? []);
  const first = new Map<number, FakeStage>();
  for (const { stage, rank, kernels } of copies) {
    if (!(kernels instanceof FakeStage)) continue;
    const other = first.getOrInsert(stage, kernels);
    if (kernels.weights.some((value, i) => value !== other.weights[i])) {
      return `copy ${rank} of stage ${stage} has other weights than the first`;
    }
  }
}
