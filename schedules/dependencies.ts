/** The rules of a pipeline, in one place: what each action waits for, what it gives, what may follow. */

import { type Action, formatAction } from "./action.ts";
import { type ActionList, KIND } from "./action_list.ts";
import { hostTable, type Schedule } from "./schedule.ts";
import { leaving, type SkipEdge, type StageWays, stageWays, type Way } from "./skip_edges.ts";

/** What is computed, and where, whatever the order. */
export interface Work {
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The micro-batches of the step. */
  readonly microBatches: number;
  /** Slices of each micro-batch's sequence; 1 unless given. */
  readonly slices?: number | undefined;
  /** For each micro-batch, the replica that computes it. */
  readonly replicaOf: readonly number[];
  /** The worker of each stage of each replica, at index `replica * stages + stage`. */
  readonly hosts: Int32Array;
  /** The skip edges; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
}

/** What an output is: of a forward, of a backward for the input (the halves apart), or of an `R`. */
const OUTPUT = { forward: 0, gradient: 1, secondHalf: 2, recomputed: 3 } as const;

const NO_WAYS: readonly Way[] = [];

/** The most inputs of a plain action of a chain: its forward, the later slice, R, and two halves from above. */
const INPUTS_MAX = 5;

/**
 * The outputs of a step by number, and which of them each plain action waits for and gives.
 *
 * - F of a stage waits for F of the stage before, and of the slice before.
 * - B and I wait for F (and R where there is one) of the same stage, for B or I of the stage above,
 *   and of the slice after, whose attention read the keys and values of this one.
 * - W waits for I of the same stage; R for F.
 * - Over a skip edge, F waits for F of the stage that makes the value, and B and I for B or I of the
 *   next stage that uses it. The chain comes to each of them last, as a value goes to later stages: so
 *   what follows an action, and who may go on, is told by the chain alone.
 *
 * Nothing here allocates when it is asked: what was asked for last is in `inputs` and `outputs`.
 */
export class Dependencies {
  /** The outputs that the action asked for last waits for. */
  readonly inputs: Int32Array;
  /**
   * What each comes over from another worker, as a number in {@linkcode StageTimes.send}: the lower of
   * the two stages of an edge of the chain, or behind them a way; else -1.
   */
  readonly edges: Int32Array;
  /** The outputs that the action asked for last gives. */
  readonly outputs = new Int32Array(2);
  /** The number of outputs that there can be. */
  readonly outputCount: number;
  readonly #work: Work;
  readonly #slices: number;
  /** Cells of one stage: a cell is a slice of a micro-batch in a stage. */
  readonly #row: number;
  readonly #cells: number;
  /** Where the outputs of second halves begin: with those of the first where nothing is halved. */
  readonly #secondHalves: number;
  /** 1 for each cell that has an R; undefined where none has. */
  readonly #recomputes: Uint8Array | undefined;
  /** For each stage the ways over skip edges that begin or end there; undefined for a chain. */
  readonly #ways: readonly StageWays[] | undefined;

  /** @param lists in which halves and recomputations are looked for. */
  constructor(work: Work, lists: readonly ActionList[] = []) {
    const { stages, microBatches, slices = 1, edges } = work;
    this.#work = work;
    this.#slices = slices;
    this.#row = microBatches * slices;
    this.#cells = stages * this.#row;
    const hasHalves = lists.some((list) => list.hasHalves);
    this.#recomputes = this.#recomputed(lists);
    this.#secondHalves = (hasHalves ? OUTPUT.secondHalf : OUTPUT.gradient) * this.#cells;
    const kinds = this.#recomputes ? 4 : hasHalves ? 3 : 2;
    this.outputCount = kinds * this.#cells;
    this.#ways = stageWays(stages, edges);
    const inputs = (this.#ways ?? []).reduce(
      (most, { toForward, toBackward }) =>
        Math.max(most, INPUTS_MAX + Math.max(toForward.length, 2 * toBackward.length)),
      INPUTS_MAX,
    );
    this.inputs = new Int32Array(inputs);
    this.edges = new Int32Array(inputs);
  }

  #recomputed(lists: readonly ActionList[]): Uint8Array | undefined {
    let recomputes: Uint8Array | undefined;
    for (const list of lists) {
      for (let part = 0; part < list.partCount; part++) {
        if (list.kindAt(part) !== KIND.R) continue;
        recomputes ??= new Uint8Array(this.#cells);
        recomputes[this.cellOf(list.stageAt(part), list.microBatchAt(part), list.sliceAt(part))] =
          1;
      }
    }
    return recomputes;
  }

  /** The number of a slice of a micro-batch in a stage. */
  cellOf(stage: number, microBatch: number, slice = 0): number {
    return stage * this.#row + microBatch * this.#slices + slice;
  }

  /** The worker that holds the stage of a micro-batch. */
  hostOf(stage: number, microBatch: number): number {
    const { hosts, replicaOf, stages } = this.#work;
    return hosts[(replicaOf[microBatch] as number) * stages + stage] as number;
  }

  /** Puts what a plain action waits for into `inputs` and `edges`, and gives how many there are. */
  inputsOf(kind: number, stage: number, microBatch: number, half = 0, slice = 0): number {
    const here = this.cellOf(stage, microBatch, slice), last = this.#work.stages - 1;
    if (kind === KIND.F) {
      let count = 0;
      if (stage > 0) {
        count = this.#put(count, here - this.#row, this.#edge(stage - 1, stage, microBatch));
      }
      if (slice > 0) count = this.#put(count, here - 1, -1);
      if (this.#ways === undefined) return count;
      for (const { from, number } of this.#ways[stage]!.toForward) {
        const edge = this.#way(number, from, stage, microBatch);
        count = this.#put(count, this.cellOf(from, microBatch, slice), edge);
      }
      return count;
    }
    if (kind === KIND.W) return this.#putGradient(0, here, 0, -1);
    let count = this.#put(0, here, -1);
    if (kind === KIND.R) return count;
    if (this.#recomputes?.[here] === 1) {
      count = this.#put(count, OUTPUT.recomputed * this.#cells + here, -1);
    }
    if (slice < this.#slices - 1) count = this.#putGradient(count, here + 1, 0, -1);
    if (stage < last) {
      const edge = this.#edge(stage, stage + 1, microBatch);
      count = this.#putGradient(count, here + this.#row, half, edge);
    }
    if (this.#ways === undefined) return count;
    for (const { from, number } of this.#ways[stage]!.toBackward) {
      const edge = this.#way(number, from, stage, microBatch);
      count = this.#putGradient(count, this.cellOf(from, microBatch, slice), half, edge);
    }
    return count;
  }

  /** The number of a way between two workers; -1 where both stages are on one. */
  #way(number: number, from: number, to: number, microBatch: number): number {
    return this.hostOf(from, microBatch) === this.hostOf(to, microBatch) ? -1 : number;
  }

  #put(count: number, output: number, edge: number): number {
    this.inputs[count] = output;
    this.edges[count] = edge;
    return count + 1;
  }

  #putGradient(count: number, cell: number, half: number, edge: number): number {
    const first = OUTPUT.gradient * this.#cells + cell, second = this.#secondHalves + cell;
    let after = count;
    if (half !== 2) after = this.#put(after, first, edge);
    if (half !== 1 && (half === 2 || second !== first)) after = this.#put(after, second, edge);
    return after;
  }

  /** The lower stage of an edge between two workers; -1 where both stages are on one. */
  #edge(lower: number, upper: number, microBatch: number): number {
    return this.hostOf(lower, microBatch) === this.hostOf(upper, microBatch) ? -1 : lower;
  }

  /** Puts what a plain action gives into `outputs`, and gives how many there are; none of a W. */
  outputsOf(kind: number, stage: number, microBatch: number, half = 0, slice = 0): number {
    const here = this.cellOf(stage, microBatch, slice);
    if (kind === KIND.W) return 0;
    if (kind === KIND.F || kind === KIND.R) {
      this.outputs[0] = (kind === KIND.F ? OUTPUT.forward : OUTPUT.recomputed) * this.#cells + here;
      return 1;
    }
    const first = OUTPUT.gradient * this.#cells + here, second = this.#secondHalves + here;
    this.outputs[0] = half === 2 ? second : first;
    if (half !== 0 || second === first) return 1;
    this.outputs[1] = second;
    return 2;
  }

  /** Another worker that may wait for what an action gives; -1 for none. */
  waiting(kind: number, stage: number, microBatch: number): number {
    if (kind === KIND.W || kind === KIND.R) return -1;
    const next = kind === KIND.F ? stage + 1 : stage - 1;
    if (next < 0 || next === this.#work.stages) return -1;
    const other = this.hostOf(next, microBatch);
    return other === this.hostOf(stage, microBatch) ? -1 : other;
  }

  /**
   * The plain actions that may be able to run once a plain action has, a backward as B: that of the
   * next stage on its way first, then those of the same stage.
   */
  followersOf({ kind, stage, microBatch, half, slice }: Action): Action[] {
    const followers: Action[] = [], last = this.#work.stages - 1;
    const add = (kind: Action["kind"], stage: number, more?: Partial<Action>) =>
      void followers.push(
        more ? { kind, stage, microBatch, ...more } : { kind, stage, microBatch },
      );
    const same = slice === undefined ? undefined : { slice };
    if (kind === "W") return followers;
    if (kind === "R") add("B", stage, same);
    else if (kind === "F") {
      if (stage < last) add("F", stage + 1, same);
      if (slice !== undefined && slice < this.#slices - 1) add("F", stage, { slice: slice + 1 });
      if (this.#recomputes?.[this.cellOf(stage, microBatch, slice)] === 1) add("R", stage, same);
      else if (stage === last) add("B", stage, same);
    } else {
      if (stage > 0) add("B", stage - 1, half === undefined ? same : { half });
      if (slice !== undefined && slice > 0) add("B", stage, { slice: slice - 1 });
      if (kind === "I") add("W", stage, same);
    }
    return followers;
  }

  /** The ways over skip edges on which something leaves once a plain action has run. */
  waysFrom({ kind, stage }: Action): readonly Way[] {
    return this.#ways === undefined ? NO_WAYS : leaving(this.#ways, kind, stage);
  }

  /** The number of arrivals that there can be: of an output at the next stage, or over a way. */
  get arrivalCount(): number {
    const ways = new Set(this.#ways?.flatMap((all) => [...all.toForward, ...all.toBackward]));
    return this.outputCount + 2 * ways.size * this.#row;
  }

  /** The number of the arrival of the i-th of the inputs that were asked for last. */
  arrivalOf(i: number): number {
    const output = this.inputs[i]!, way = this.edges[i]! - this.#work.stages;
    if (way < 0) return output;
    const half = Number(output >= OUTPUT.secondHalf * this.#cells);
    return this.outputCount + (2 * way + half) * this.#row + output % this.#row;
  }

  /** What an output is, for people. */
  describe(output: number): Output {
    const cell = output % this.#cells, kind = Math.floor(output / this.#cells);
    const slice = cell % this.#slices;
    return {
      isForward: kind === OUTPUT.forward,
      isRecomputed: kind === OUTPUT.recomputed,
      stage: Math.floor(cell / this.#row),
      microBatch: Math.floor(cell % this.#row / this.#slices),
      ...(this.#slices > 1 && { slice }),
    };
  }
}

/** What an output is: neither of the two for the gradient of an input. */
interface Output {
  /** Whether a forward gives it. */
  readonly isForward: boolean;
  /** Whether a recomputation gives it. */
  readonly isRecomputed: boolean;
  /** The stage that gives it. */
  readonly stage: number;
  /** Its micro-batch. */
  readonly microBatch: number;
  /** Its slice, where micro-batches have several. */
  readonly slice?: number;
}

/** The offers of one step. */
export interface StepOffers {
  /** The worker that holds the stage of an action's micro-batch. */
  hostOf(action: Action): number;
  /** A plain action has run. @returns what may follow, a message away or at the same worker. */
  follow(part: Action): Action[];
  /** The ways over skip edges on which something leaves once a plain action has run. */
  waysFrom(part: Action): readonly Way[];
  /**
   * A message for an action has arrived.
   *
   * @param way over which it came; from the stage before or behind unless given.
   */
  arrive(action: Action, way?: Way): void;
  /** Adds an action to what a worker may run if all that it needs is there. */
  offer(action: Action, ready: Action[]): void;
}

/** Opens the offers of a step. */
export function openOffers(schedule: Schedule): StepOffers {
  const { stages } = schedule;
  const dependencies = new Dependencies(
    { ...schedule, hosts: hostTable(schedule) },
    schedule.lists,
  );
  /** 1 for each output that is there where it is made, and where a message takes it. */
  const given = new Uint8Array(dependencies.outputCount);
  const arrived = new Uint8Array(dependencies.arrivalCount);
  // Of the stages that a backward waits for one may give halves, and another all at once.
  const hasHalves = schedule.edges && schedule.lists?.some((list) => list.hasHalves);
  const offeredHalves = hasHalves ? new Set<string>() : undefined;
  const inputsOf = ({ kind, stage, microBatch, half, slice }: Action) =>
    dependencies.inputsOf(KIND[kind], stage, microBatch, half === undefined ? 0 : half + 1, slice);
  const isReady = (action: Action) => {
    const { inputs, edges } = dependencies;
    for (let i = inputsOf(action) - 1; i >= 0; i--) {
      const isThere = edges[i]! < 0 ? given[inputs[i]!] : arrived[dependencies.arrivalOf(i)];
      if (isThere === 0) return false;
    }
    return true;
  };
  return {
    hostOf: ({ stage, microBatch }) => dependencies.hostOf(stage, microBatch),
    follow(part) {
      const { kind, stage, microBatch, half, slice } = part, { outputs } = dependencies;
      const code = half === undefined ? 0 : half + 1;
      const count = dependencies.outputsOf(KIND[kind], stage, microBatch, code, slice);
      for (let i = 0; i < count; i++) given[outputs[i]!] = 1;
      return dependencies.followersOf(part);
    },
    waysFrom: (part) => dependencies.waysFrom(part),
    arrive(action, way) {
      const { edges } = dependencies;
      for (let i = inputsOf(action) - 1; i >= 0; i--) {
        const edge = edges[i]!, isIt = way ? edge === way.number : edge >= 0 && edge < stages;
        if (isIt) arrived[dependencies.arrivalOf(i)] = 1;
      }
    },
    offer(action, ready) {
      if (action.kind !== "B" || offeredHalves === undefined) {
        if (isReady(action)) ready.push(action);
        return;
      }
      for (const half of [0, 1] as const) {
        const one = { ...action, half }, name = formatAction(one);
        if (offeredHalves.has(name) || !isReady(one)) continue;
        offeredHalves.add(name);
        ready.push(one);
      }
    },
  };
}
