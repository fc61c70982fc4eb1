/** The dependencies of a step: the inputs and outputs of each action, and its possible successors. */

import { type Action, formatAction } from "./action.ts";
import { type ActionList, KIND, partAt } from "./action_list.ts";
import {
  leaving,
  type SkipEdge,
  type SkipRoute,
  type StageRoutes,
  stageRoutes,
} from "./skip_edges.ts";

/** The stages, micro-batches and placement of a step, without an order. */
export interface StepShape {
  /** The number of stages of one copy of the model. */
  readonly stages: number;
  /** The micro-batches of the step. */
  readonly microBatches: number;
  /** Slices of each micro-batch's sequence; 1 unless given. */
  readonly slices?: number | undefined;
  /** For each micro-batch, the pipeline that computes it. */
  readonly pipelineOf: readonly number[];
  /** The worker of each stage of each pipeline, at index `pipeline * stages + stage`. */
  readonly hosts: Int32Array;
  /** The skip edges; none unless given. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** The number of its first micro-batch; 0 unless given. */
  readonly first?: number | undefined;
  /** True if backwards may run in halves; as in the lists unless given. */
  readonly hasHalves?: boolean | undefined;
  /** True if values of skip edges between neighbouring stages travel in the messages of the chain. */
  readonly joinsNeighbours?: boolean | undefined;
}

/** Groups of outputs: of forwards, of backwards for the input (two groups for halves), and of R. */
const OUTPUT = { forward: 0, gradient: 1, secondHalf: 2, recomputed: 3 } as const;

/** The most inputs of a plain action of a chain: forward, later slice, R, and two halves from above. */
const INPUTS_MAX = 5;

/**
 * The outputs of a step by number, and the inputs and outputs of each plain action.
 *
 * - F of a stage waits for F of the stage before, and of the slice before.
 * - B and I wait for F (and R if there is one) of the same stage, for B or I of the stage above,
 *   and of the slice after, whose attention read the keys and values of this one.
 * - W waits for I of the same stage; R for F.
 * - Over a skip edge, F waits for F of the stage that makes the value, and B and I for B or I of the
 *   next stage that uses it. The input over the chain is always the last to come, because a value goes
 *   to later stages, so the chain alone determines the successors of an action.
 *
 * Lists can be long, so `inputsOf` and `outputsOf` do not allocate: `inputs`, `edges` and `outputs` hold
 * the result of the last call.
 */
export class Dependencies {
  /** The inputs of the action of the last call. */
  readonly inputs: Int32Array;
  /**
   * For each input from another worker, its index in {@linkcode StageTimes.send}: the lower of the two
   * stages of an edge of the chain, or the number of a skip route; -1 for a local input.
   */
  readonly edges: Int32Array;
  /** The outputs of the action of the last call. */
  readonly outputs = new Int32Array(2);
  /** The number of possible outputs. */
  readonly outputCount: number;
  readonly #shape: StepShape;
  readonly #slices: number;
  readonly #first: number;
  readonly #hasHalves: boolean;
  /** Cells of one stage: a cell is a slice of a micro-batch in a stage. */
  readonly #row: number;
  readonly #cells: number;
  /** First number of the outputs of second halves: that of first halves if nothing is halved. */
  readonly #secondHalves: number;
  /** 1 for each cell that has an R; undefined if there is no R. */
  readonly #recomputes: Uint8Array | undefined;
  /** For each stage the skip routes that begin or end there; undefined for a chain. */
  readonly #routes: readonly StageRoutes[] | undefined;

  /** @param lists The lists that may have halves and recomputations. */
  constructor(shape: StepShape, lists: readonly ActionList[] = []) {
    const { stages, microBatches, slices = 1, edges, first = 0, joinsNeighbours } = shape;
    this.#shape = shape;
    this.#slices = slices;
    this.#first = first;
    this.#row = microBatches * slices;
    this.#cells = stages * this.#row;
    const hasHalves = shape.hasHalves ?? lists.some((list) => list.hasHalves);
    this.#hasHalves = hasHalves;
    this.#recomputes = this.#recomputed(lists);
    this.#secondHalves = (hasHalves ? OUTPUT.secondHalf : OUTPUT.gradient) * this.#cells;
    const kinds = this.#recomputes ? 4 : hasHalves ? 3 : 2;
    this.outputCount = kinds * this.#cells;
    this.#routes = stageRoutes(stages, edges, joinsNeighbours);
    const inputs = (this.#routes ?? []).reduce(
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
        const { stage, microBatch, slice } = partAt(list, part);
        (recomputes ??= new Uint8Array(this.#cells))[this.cellOf(stage, microBatch, slice)] = 1;
      }
    }
    return recomputes;
  }

  /** The number of a slice of a micro-batch in a stage. */
  cellOf(stage: number, microBatch: number, slice = 0): number {
    return stage * this.#row + (microBatch - this.#first) * this.#slices + slice;
  }

  /** The worker of a stage and micro-batch. */
  hostOf(stage: number, microBatch: number): number {
    const { hosts, pipelineOf, stages } = this.#shape;
    return hosts[pipelineOf[microBatch - this.#first]! * stages + stage]!;
  }

  /** Writes the inputs of a plain action into `inputs` and `edges`. @returns the number of inputs. */
  inputsOf(kind: number, stage: number, microBatch: number, half = 0, slice = 0): number {
    const here = this.cellOf(stage, microBatch, slice), last = this.#shape.stages - 1;
    if (kind === KIND.F) {
      let count = 0;
      if (stage > 0) {
        const edge = this.#between(stage - 1, stage - 1, stage, microBatch);
        count = this.#put(count, here - this.#row, edge);
      }
      if (slice > 0) count = this.#put(count, here - 1, -1);
      if (this.#routes === undefined) return count;
      for (const { from, number } of this.#routes[stage]!.toForward) {
        const edge = this.#between(number, from, stage, microBatch);
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
      const edge = this.#between(stage, stage, stage + 1, microBatch);
      count = this.#putGradient(count, here + this.#row, half, edge);
    }
    if (this.#routes === undefined) return count;
    for (const { from, number } of this.#routes[stage]!.toBackward) {
      const edge = this.#between(number, from, stage, microBatch);
      count = this.#putGradient(count, this.cellOf(from, microBatch, slice), half, edge);
    }
    return count;
  }

  /** The number of an edge or route; -1 if both of its stages are on one worker. */
  #between(number: number, from: number, to: number, microBatch: number): number {
    return this.hostOf(from, microBatch) === this.hostOf(to, microBatch) ? -1 : number;
  }

  /** Writes the inputs of a part of a list. @returns the number of inputs. */
  inputsAt(list: ActionList, part: number): number {
    const kind = list.kindAt(part), half = list.halfAt(part), slice = list.sliceAt(part);
    return this.inputsOf(kind, list.stageAt(part), list.microBatchAt(part), half, slice);
  }

  /** Writes the outputs of a part of a list. @returns the number of outputs. */
  outputsAt(list: ActionList, part: number): number {
    const kind = list.kindAt(part), half = list.halfAt(part), slice = list.sliceAt(part);
    return this.outputsOf(kind, list.stageAt(part), list.microBatchAt(part), half, slice);
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

  /** Writes the outputs of a plain action into `outputs`. @returns their number; 0 for a W. */
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

  /** Another worker that may wait for the output of an action; -1 for none. */
  waiting(kind: number, stage: number, microBatch: number): number {
    if (kind === KIND.W || kind === KIND.R) return -1;
    const next = kind === KIND.F ? stage + 1 : stage - 1;
    if (next < 0 || next === this.#shape.stages) return -1;
    const other = this.hostOf(next, microBatch);
    return other === this.hostOf(stage, microBatch) ? -1 : other;
  }

  /**
   * The possible successors of a plain action, with backwards as B: that of the next stage first, then
   * those of the same stage.
   */
  followersOf({ kind, stage, microBatch, half, slice }: Action): Action[] {
    const followers: Action[] = [], last = this.#shape.stages - 1;
    const add = (kind: Action["kind"], stage: number, more?: Partial<Action>) =>
      void followers.push({ kind, stage, microBatch, ...more });
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

  /** The skip routes over which the output of a plain action leaves. */
  routesFrom({ kind, stage }: Action): readonly SkipRoute[] {
    return this.#routes === undefined ? [] : leaving(this.#routes, kind, stage);
  }

  /** True if skip edges may bring halves and whole gradients to one backward. */
  get mixesHalves(): boolean {
    return this.#hasHalves && this.#routes !== undefined;
  }

  /** The action that gives an output; B for any backward. */
  describe(output: number): {
    readonly kind: "F" | "B" | "R";
    readonly stage: number;
    readonly microBatch: number;
    readonly slice?: number;
  } {
    const cell = output % this.#cells;
    return {
      kind: (["F", "B", "B", "R"] as const)[Math.floor(output / this.#cells)]!,
      stage: Math.floor(cell / this.#row),
      microBatch: this.#first + Math.floor(cell % this.#row / this.#slices),
      ...this.#slices > 1 && { slice: cell % this.#slices },
    };
  }
}

/** Readiness of the actions of one step, by the outputs made and the messages arrived so far. */
export class Readiness extends Dependencies {
  /** 1 for each output that was made. */
  readonly #given: Uint8Array;
  /** For each output, the messages that have arrived for the action that makes it. */
  readonly #arrived: Uint8Array;
  /** Halves that were offered, if skip edges may bring halves and whole gradients to one backward. */
  readonly #offeredHalves = new Set<string>();

  constructor(shape: StepShape, lists?: readonly ActionList[]) {
    super(shape, lists);
    this.#given = new Uint8Array(this.outputCount);
    this.#arrived = new Uint8Array(this.outputCount);
  }

  /** Notes that a plain action has run. @returns its successors, here or on other workers. */
  complete(part: Action): Action[] {
    for (let i = this.#readOutputs(part) - 1; i >= 0; i--) this.#given[this.outputs[i]!] = 1;
    return this.followersOf(part);
  }

  /** Notes the arrival of a message from another worker for an action. */
  arrive(action: Action): void {
    for (let i = this.#readOutputs(action) - 1; i >= 0; i--) this.#arrived[this.outputs[i]!]!++;
  }

  /** Adds an action to `ready` if all of its inputs have arrived. */
  offer(action: Action, ready: Action[]): void {
    if (action.kind !== "B" || !this.mixesHalves) {
      if (this.isReady(action)) ready.push(action);
      return;
    }
    for (const half of [0, 1] as const) {
      const one = { ...action, half }, name = formatAction(one);
      if (this.#offeredHalves.has(name) || !this.isReady(one)) continue;
      this.#offeredHalves.add(name);
      ready.push(one);
    }
  }

  /** True if all inputs of an action are here: outputs of its worker, and messages from others. */
  isReady(action: Action): boolean {
    const { kind, stage, microBatch, half, slice } = action;
    let missing = 0;
    for (
      let i = this.inputsOf(KIND[kind], stage, microBatch, codeOf(half), slice) - 1;
      i >= 0;
      i--
    ) {
      if (this.edges[i]! >= 0) missing++;
      else if (this.#given[this.inputs[i]!] === 0) return false;
    }
    for (let i = this.#readOutputs(action) - 1; i >= 0; i--) {
      missing -= this.#arrived[this.outputs[i]!]!;
    }
    return missing <= 0; // an injected micro-batch is a message, too
  }

  #readOutputs({ kind, stage, microBatch, half, slice }: Action): number {
    return this.outputsOf(KIND[kind], stage, microBatch, codeOf(half), slice);
  }
}

/** The packed number of a half; 0 for a whole micro-batch. */
const codeOf = (half: Action["half"]) => half === undefined ? 0 : half + 1;
