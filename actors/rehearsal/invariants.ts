/**
 * What must hold in a rehearsal after each message, whatever its order.
 *
 * @module
 */

import { type Action, formatAction, parseAction, parts } from "../../schedules/mod.ts";
import type { EngineOptions } from "../run/engines/engine.ts";
import type { View, World } from "../simulation/mod.ts";
import { StandIn } from "./stand_in.ts";
import type { SupervisorView } from "../pipeline/supervisor/supervisor.ts";
import type { WorkerView } from "../pipeline/worker/worker.ts";

/** The parts of actions that were named once. */
const known = new Map<string, readonly Action[]>();

function partsOf(name: string): readonly Action[] {
  let found = known.get(name);
  if (!found) known.set(name, found = parts(parseAction(name)));
  return found;
}

/** What a worker has done in the step under way. */
interface Doings {
  readonly replica: number;
  readonly done: Set<string>;
  /** F without B or W, in micro-batches. */
  stash: number;
  bucketsStepped: number;
}

/** Has the invariants of a training run checked after each step of `world`. */
export function addInvariants<C>(world: World<C>, { schedule, replicas }: EngineOptions): void {
  const workers = replicas * schedule.workers;
  const ids = Array.from({ length: workers }, (_, worker) => `worker-${worker}`);
  const doings = new Map<string, Doings>();
  /** Micro-batches that have left stage 0 backward, by replica. */
  let left: number[] = [];
  let round = 0, isInStep = false, isCommitted = false;
  const begin = () => {
    left = Array.from({ length: replicas }, () => 0);
    for (const [worker, id] of ids.entries()) {
      const replica = Math.floor(worker / schedule.workers);
      doings.set(id, { replica, done: new Set(), stash: 0, bucketsStepped: 0 });
    }
  };
  begin();

  world.invariant("each B after its F and once", ({ actor, type, name }) => {
    const mine = doings.get(actor);
    if (!mine || type !== "Dispatch" || name === "") return;
    for (const part of partsOf(name)) {
      const problem = outOfTurn(part, mine.done);
      if (problem) return problem;
      mine.done.add(formatAction(part));
      const { kind, stage, half } = part;
      if (kind === "F") mine.stash++;
      else if (kind !== "I") mine.stash -= half === undefined ? 1 : 0.5;
      if (stage === 0 && kind !== "F" && kind !== "W" && half !== 0) left[mine.replica]!++;
    }
  });
  world.invariant("F − B = stash", ({ actor, state }) => {
    const mine = doings.get(actor), worker = mine && state<WorkerView>(actor);
    if (!worker || worker.stash === mine.stash) return;
    return `${actor} holds ${worker.stash} activations, its F − B is ${mine.stash}`;
  });
  world.invariant("in flight ≤ limit", ({ actor, state }) => {
    if (actor !== "supervisor") return;
    const { injected = [] } = state<SupervisorView>(actor) ?? {};
    const limit = schedule.injectionLimit;
    const over = injected.findIndex((count, replica) => count - left[replica]! > limit);
    if (over < 0) return;
    return `replica ${over} has ${injected[over]! - left[over]!} in flight, the limit is ${limit}`;
  });
  world.invariant("a step ends whole, with nothing left over", (view) => {
    const { actor, type, state } = view;
    if (type === "StepBucket") doings.get(actor)!.bucketsStepped++;
    if (actor !== "supervisor") return;
    const now = state<SupervisorView>(actor);
    if (!now) return;
    isCommitted = now.isInStep ? now.isCommitted : isCommitted;
    if (now.round > round) isCommitted = now.isCommitted;
    round = now.round;
    const hasEnded = isInStep && !now.isInStep;
    isInStep = now.isInStep;
    if (!hasEnded) return;
    const problem = ids.map((id) => leftOver(view, id, doings.get(id)!, isCommitted)).find(Boolean);
    begin();
    return problem ?? unequalCopies(view, ids);
  });
}

/** What forbids an action here and now, after those that are done. */
function outOfTurn(part: Action, done: ReadonlySet<string>): string | undefined {
  const { kind, stage, microBatch, half } = part, name = formatAction(part);
  if (done.has(name)) return `${name} ran twice`;
  const wants = (before: string) =>
    done.has(`${stage}${before}${microBatch}`) ? undefined : `${name} ran without its ${before}`;
  if (kind === "F") return;
  if (kind === "W") return wants("I");
  if (half === 1) return done.has(`${stage}B${microBatch}.0`) ? undefined : `${name} ran first`;
  return wants("F");
}

/** What the end of a step has left with a worker. */
function leftOver(
  { state, waiting }: View,
  id: string,
  { bucketsStepped }: Doings,
  isCommitted: boolean,
): string | undefined {
  const worker = state<WorkerView>(id);
  if (!worker) return;
  const { isInStep, stash, ready, copies } = worker;
  if (isInStep) return `${id} is still in the step`;
  if (stash + ready > 0) return `${id} keeps ${stash} activations and ${ready} inputs`;
  // Parts of an all-reduce that was given up are dropped when they come.
  if (isCommitted && waiting(id) > 0) return `${waiting(id)} messages wait for ${id}`;
  const buckets = copies.reduce((sum, { kernels }) => sum + kernels.buckets.length, 0);
  const must = isCommitted ? buckets : 0;
  return bucketsStepped === must ? undefined : `${id} stepped ${bucketsStepped} of ${must} buckets`;
}

/** Copies of a stage whose weights differ. */
function unequalCopies({ state }: View, ids: readonly string[]): string | undefined {
  const copies = ids.flatMap((id) => state<WorkerView>(id)?.copies ?? []);
  const first = new Map<number, StandIn>();
  for (const { stage, rank, kernels } of copies) {
    if (!(kernels instanceof StandIn)) continue;
    const other = first.get(stage);
    if (!other) first.set(stage, kernels);
    else if (kernels.weights.some((value, i) => value !== other.weights[i])) {
      return `copy ${rank} of stage ${stage} has other weights than the first`;
    }
  }
}
