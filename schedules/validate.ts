/** Validation of a schedule before it runs. */

import { type Action, type ActionKind, cutInto, formatAction, parts } from "./action.ts";
import {
  type ActionList,
  activationChanges,
  halvesOf,
  KIND,
  KINDS,
  type PackedPart,
  partAt,
} from "./action_list.ts";
import { refusal } from "./errors.ts";
import { type AwaitedInput, execute, type Execution, isOfChain } from "./execute.ts";
import { hostTable, type ListedSchedule } from "./schedule.ts";
import { formatEdge } from "./skip_edges.ts";

/** Reasons of a violation. */
export type ViolationReason =
  | "unknown" // a stage or micro-batch that the schedule does not have
  | "misplaced" // an action on a worker that does not hold the stage
  | "repeated" // an action that has been done before
  | "missing" // an action that is on no list
  | "order" // a backward before its forward, or a W before its I, on one worker
  | "descending" // micro-batches out of order in the sum of a stage's gradients
  | "in-flight" // more activations on a worker than allowed
  | "deadlock"; // a circle of workers that wait for each other

/** A violation of the rules of a schedule. */
export interface Violation {
  /** The kind of violation. */
  readonly reason: ViolationReason;
  /** The worker on whose list it is. */
  readonly worker: number;
  /** A description of the violation. */
  readonly message: string;
}

/** A worker that is stuck. */
interface Wait {
  readonly worker: number;
  /** Its next action. */
  readonly head: Action;
  /** The input that `head` waits for. */
  readonly awaited: AwaitedInput;
}

/**
 * Executes a schedule on paper; if it stops before its end, reports the circle of actions that wait
 * for each other, worker by worker. The schedule must be complete: an action that is on no list is
 * not a deadlock.
 *
 * @example Two workers that wait for later actions of each other
 *
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F, findDeadlock, withLists } from "@troupe/troupe/schedules";
 *
 * const wrong = defineSchedule({
 *   name: "wrong",
 *   summary: "worker 0 wants a gradient before it sends the activation that leads to another",
 *   place: () => ({ stages: 2, workerOf: (stage) => stage }),
 *   order: (worker) =>
 *     worker === 0 ? [F(0, 0), B(0, 0), F(0, 1), B(0, 1)] : [F(1, 0), F(1, 1), B(1, 0), B(1, 1)],
 * });
 * const [violation] = findDeadlock(withLists(wrong.create({ workers: 2, microBatches: 2 })));
 * strictEqual(
 *   violation?.message,
 *   "worker 0 waits at 0B0 for 1B0, which worker 1 runs after 1F1; " +
 *     "worker 1 waits at 1F1 for 0F1, which worker 0 runs after 0B0",
 * );
 * ```
 */
export function findDeadlock(schedule: ListedSchedule): Violation[] {
  const execution = execute(schedule);
  const stuck = schedule.lists.findIndex((list, w) => execution.ran[w]! < list.length);
  if (stuck < 0) return [];
  const circle = findCircle(schedule, execution, stuck);
  const message = circle.map((wait, i) => {
    const ran = execution.ran[wait.awaited.worker]!;
    const reach = reachOf(schedule, wait, circle[(i + 1) % circle.length]!, ran);
    return `worker ${wait.worker} waits at ${formatAction(wait.head)} for ${reach}`;
  }).join("; ");
  return [{ reason: "deadlock", worker: circle[0]?.worker ?? stuck, message }];
}

function findCircle(schedule: ListedSchedule, execution: Execution, stuck: number): Wait[] {
  const chain: Wait[] = [], seen = new Map<number, number>();
  let worker = stuck;
  while (!seen.has(worker)) {
    seen.set(worker, chain.length);
    const index = execution.ran[worker]!;
    const head = schedule.lists[worker]!.at(index)!;
    const awaited = execution.lastInput(worker, index)!;
    chain.push({ worker, head, awaited });
    worker = awaited.worker;
  }
  return chain.slice(seen.get(worker));
}

/**
 * Describes the input that a worker waits for, and the action before it on the other worker, which
 * ran `ran` actions.
 */
function reachOf(schedule: ListedSchedule, wait: Wait, next: Wait, ran: number): string {
  const { head, awaited } = wait, from = awaited.worker;
  const part = partFor(schedule.lists[from]!, awaited, ran);
  const over = isOfChain(head, awaited) ? "" : " over a skip edge";
  const isNext = parts(next.head).some((one) => formatAction(one) === part);
  if (!isNext) {
    return `${part}${over}, which worker ${from} runs after ${formatAction(next.head)}`;
  }
  return from === wait.worker
    ? `${part}, which is a part of it`
    : `${part} of worker ${from}${over}`;
}

/**
 * The name of the first action from an index on that gives an input; a backward may be split or halved
 * there.
 */
function partFor(list: ActionList, input: AwaitedInput, from: number): string {
  for (let index = from; index < list.length; index++) {
    const found = parts(list.at(index)!).find((part) =>
      part.stage === input.stage && part.microBatch === input.microBatch &&
      (input.part === undefined || part.part?.index === input.part.index) &&
      gives(part.kind) === gives(input.kind)
    );
    if (found !== undefined) return formatAction(found);
  }
  return formatAction(input);
}

/** The output of a kind of action; undefined for W. */
const gives = (kind: ActionKind) =>
  ({ F: "output", R: "recomputed", I: "gradient", B: "gradient", W: undefined })[kind];

/** Limits of a validation. */
export interface ValidationLimits {
  /**
   * Most (stage, micro-batch) activations that a worker may hold at a time; the number of its stages
   * times `injectionLimit` unless given.
   */
  readonly activations?: number | undefined;
}

/**
 * Finds the violations of a schedule, in time linear in the number of its actions: every stage of
 * every micro-batch must be computed once and on its worker, forward before backward, with gradients
 * summed in ascending order of micro-batches, live activations within their bound, and no deadlock.
 * Messages follow from the actions, so they match if nothing is missing or repeated. A schedule
 * without violations can run.
 *
 * @example Two actions in the wrong order
 * ```ts
 * import { strictEqual } from "node:assert/strict";
 * import { B, defineSchedule, F, validate, withLists } from "@troupe/troupe/schedules";
 *
 * const wrong = defineSchedule({
 *   name: "wrong",
 *   summary: "a backward before its forward",
 *   place: () => ({ stages: 1, workerOf: () => 0 }),
 *   order: () => [B(0, 0), F(0, 0)],
 * });
 * const [violation] = validate(withLists(wrong.create({ workers: 1, microBatches: 1 })));
 * strictEqual(violation?.message, "worker 0 runs 0B0 before 0F0");
 * ```
 */
export function validate(schedule: ListedSchedule, limits: ValidationLimits = {}): Violation[] {
  const check = new Check(schedule, limits);
  check.edges();
  schedule.lists.forEach((list, worker) => check.list(worker, list));
  const violations = check.finish();
  // Lists that lack an action stop there, which is not a deadlock.
  const isComplete = violations.every(({ reason }) =>
    reason === "descending" || reason === "in-flight"
  );
  return isComplete ? [...violations, ...findDeadlock(schedule)] : violations;
}

/**
 * Refuses a schedule that cannot run.
 *
 * @throws {RangeError} if there is a violation; the text names the first five.
 *
 * @example
 * ```ts
 * import { assertValid, createSchedule, withLists } from "@troupe/troupe/schedules";
 *
 * // no-assert: it throws if the schedule is not valid
 * assertValid(withLists(createSchedule("1f1b", { workers: 4, microBatches: 8 })));
 * ```
 */
export function assertValid(schedule: ListedSchedule, limits: ValidationLimits = {}): void {
  const violations = validate(schedule, limits);
  if (violations.length > 0) throw violationError(schedule, violations);
}

/** The error that names the first five violations. */
export function violationError(
  { name }: ListedSchedule,
  violations: readonly Violation[],
): RangeError {
  const more = violations.length > 5 ? `; and ${violations.length - 5} more` : "";
  const received = violations.slice(0, 5).map(({ message }) => message).join("; ") + more;
  return refusal(`run the schedule ${name}`, "its lists must be complete and in order", received);
}

/** Completed actions of a part of a (stage, micro-batch), as bits: `DONE[KIND.B]`. */
const DONE = KINDS.map((_, kind) => 1 << kind);
const SPLIT = DONE[KIND.I]! | DONE[KIND.W]!;
const BACKWARD = DONE[KIND.B]! | DONE[KIND.I]!;
const VIOLATIONS_MAX = 1000;

class Check {
  readonly #slices: number;
  readonly #parts: number;
  readonly #hosts: Int32Array;
  readonly #done: Uint8Array;
  /** For each stage of each pipeline, the last (micro-batch, part) added to its gradients. */
  readonly #lastAdded: Int32Array;
  readonly #violations: Violation[] = [];

  constructor(
    private readonly schedule: ListedSchedule,
    private readonly limits: ValidationLimits,
  ) {
    this.#hosts = hostTable(schedule);
    this.#slices = schedule.slices ?? 1;
    this.#parts = this.#slices * halvesOf(schedule);
    this.#done = new Uint8Array(schedule.stages * schedule.microBatches * this.#parts);
    this.#lastAdded = new Int32Array(this.#hosts.length).fill(-1);
  }

  edges(): void {
    const { edges = [], stages } = this.schedule;
    for (const edge of edges) {
      const unknown = [edge.from, ...edge.to].find((stage) => !(stage >= 0 && stage < stages));
      if (unknown === undefined) continue;
      const stage = `a stage ${unknown}: there are ${stages} stages`;
      this.#add("unknown", 0, `skip edge ${formatEdge(edge)} has ${stage}`);
    }
  }

  list(worker: number, list: ActionList): void {
    const held = this.schedule.placement[worker]?.length ?? 0;
    const bound = this.limits.activations ?? held * this.schedule.injectionLimit;
    const changes = activationChanges(list);
    let live = 0, over = false;
    for (let part = 0; part < list.partCount; part++) {
      this.#part(worker, partAt(list, part));
      live += changes[part]!;
      if (live <= bound * this.#slices || over) continue;
      over = true;
      this.#add("in-flight", worker, `worker ${worker} holds more than ${bound} activations`);
    }
  }

  #part(worker: number, part: PackedPart): void {
    const { stages, microBatches, pipelineOf } = this.schedule;
    const { kind, stage, microBatch, count } = part;
    const refuse = (reason: ViolationReason, text: string) =>
      this.#add(reason, worker, `worker ${worker} runs ${this.#nameOf(part)}${text}`);
    const isKnown = count === this.#slices || (kind === KIND.B && count === this.#parts);
    if (stage >= stages || microBatch >= microBatches || !isKnown) {
      const halves = count > 1 ? ", where only B may be in two halves" : "";
      const parts = this.#slices > 1 ? ` in ${this.#slices} slices` : halves;
      const has = `${stages} stages and ${microBatches} micro-batches${parts}`;
      return refuse("unknown", ` of a schedule of ${has}`);
    }
    const copy = pipelineOf[microBatch]! * stages + stage, host = this.#hosts[copy]!;
    if (host !== worker) return refuse("misplaced", `, whose stage is on worker ${host}`);
    const cells = this.#cellsOf(part), done = cells.reduce((all, bits) => all | bits, 0);
    if (kind === KIND.R && (done & BACKWARD) !== 0) return refuse("order", " after its backward");
    // A full backward and one in parts exclude each other.
    const excluded = kind === KIND.B ? SPLIT : kind === KIND.F ? 0 : DONE[KIND.B]!;
    if ((done & (DONE[kind]! | excluded)) !== 0) return refuse("repeated", " again");
    this.#order(worker, part);
    for (const cell of cells.keys()) cells[cell]! |= DONE[kind]!;
    if (kind === KIND.B || kind === KIND.W) this.#sum(worker, copy, part);
  }

  /** Checks that a worker has run the actions before: the forward, or I before W; slices in order. */
  #order(worker: number, part: PackedPart): void {
    const { kind, index } = part, count = this.#slices;
    const needs = (kind: number, change: number, bits: number) => {
      const before = { ...part, kind, index: count > 1 ? index + change : 0, count };
      if ((this.#cellsOf(before)[0]! & bits) !== 0) return;
      const text = `${this.#nameOf(part)} before ${this.#nameOf(before)}`;
      this.#add("order", worker, `worker ${worker} runs ${text}`);
    };
    if (kind === KIND.F) {
      if (index > 0) needs(KIND.F, -1, DONE[KIND.F]!);
      return;
    }
    const needed = kind === KIND.W ? KIND.I : KIND.F;
    needs(needed, 0, DONE[needed]!);
    if (kind === KIND.W || kind === KIND.R || count === 1 || index === count - 1) return;
    needs(kind, 1, BACKWARD);
  }

  /** The bits of the cells of an action: one of a part, or all of a whole micro-batch. */
  #cellsOf({ stage, microBatch, index, count }: Omit<PackedPart, "kind">): Uint8Array {
    const first = (stage * this.schedule.microBatches + microBatch) * this.#parts;
    const parts = this.#parts;
    return count === 1
      ? this.#done.subarray(first, first + parts)
      : this.#done.subarray(first + index, first + index + 1);
  }

  /** Checks that gradients are added by ascending micro-batch, those of its slices last slice first. */
  #sum(worker: number, copy: number, part: PackedPart): void {
    const { microBatch, index } = part;
    const added = microBatch * this.#parts + (this.#slices > 1 ? this.#slices - 1 - index : index);
    const last = this.#lastAdded[copy]!;
    if (added < last) {
      const name = this.#nameOf(part);
      this.#add("descending", worker, `worker ${worker} runs ${name} after a later micro-batch`);
    }
    this.#lastAdded[copy] = Math.max(added, last);
  }

  finish(): Violation[] {
    const { stages, microBatches, pipelineOf } = this.schedule;
    for (let place = 0; place < stages * microBatches; place++) {
      const stage = Math.floor(place / microBatches), microBatch = place % microBatches;
      const worker = this.#hosts[pipelineOf[microBatch]! * stages + stage]!;
      for (const part of cutInto(this.#slices)) {
        for (const lacked of lacking(this.#cellsOf({ stage, microBatch, ...part }))) {
          const name = this.#nameOf({ stage, microBatch, ...part, ...lacked });
          this.#add("missing", worker, `worker ${worker} never runs ${name}`);
        }
      }
    }
    return this.#violations;
  }

  #nameOf({ kind, stage, microBatch, index, count }: PackedPart): string {
    return formatAction({
      kind: KINDS[kind] ?? "F",
      stage,
      microBatch,
      ...count > 1 && { part: { index, count } },
    });
  }

  #add(reason: ViolationReason, worker: number, message: string): void {
    if (this.#violations.length < VIOLATIONS_MAX) {
      this.#violations.push({ reason, worker, message });
    }
  }
}

/** The missing actions of a slice or of a whole micro-batch, by the bits of its parts. */
function lacking(cells: Uint8Array): (Pick<PackedPart, "kind"> & Partial<PackedPart>)[] {
  const lacks = (kind: number) => (cells[0]! & DONE[kind]!) === 0;
  const kinds: number[] = lacks(KIND.F) ? [KIND.F] : [];
  if ((cells[0]! & SPLIT) !== 0) {
    return [...kinds, ...[KIND.I, KIND.W].filter(lacks)].map((kind) => ({ kind }));
  }
  const left = cutInto(cells.length).filter(({ index }) => (cells[index]! & DONE[KIND.B]!) === 0);
  if (left.length === cells.length) kinds.push(KIND.B);
  const parts = left.length === cells.length ? [] : left;
  return [...kinds.map((kind) => ({ kind })), ...parts.map((part) => ({ kind: KIND.B, ...part }))];
}
