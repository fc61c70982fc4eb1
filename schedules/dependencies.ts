/** The dependencies of a step: the inputs and outputs of each action, and its possible successors. */

import { type Action, cutInto, formatAction, type Part, WHOLE } from "./action.ts";
import { type ActionList, halvesOf, KIND, partsOf } from "./action_list.ts";
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
  /** Slices of each micro-batch's sequence. Default 1. */
  readonly slices?: number | undefined;
  /** For each micro-batch, the pipeline that computes it. */
  readonly pipelineOf: readonly number[];
  /** The worker of each stage of each pipeline, at index `pipeline * stages + stage`. */
  readonly hosts: Int32Array;
  /** The skip edges. Default: none. */
  readonly edges?: readonly SkipEdge[] | undefined;
  /** The number of its first micro-batch. Default 0. */
  readonly first?: number | undefined;
  /** The parts that backwards may run in. Default: as in the lists. */
  readonly parts?: number | undefined;
  /** True if values of skip edges between neighbouring stages travel in the messages of the chain. */
  readonly joinsNeighbours?: boolean | undefined;
}

/** Groups of outputs: of forwards, of backwards for the input, and of R. */
const OUTPUT = { forward: 0, gradient: 1, recomputed: 2 } as const;

/** The most inputs of each part of a plain action of a chain: forward, R, and gradient from above. */
const INPUTS_MAX = 3;

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
  readonly outputs: Int32Array;
  /** The number of possible outputs. */
  readonly outputCount: number;
  readonly #shape: StepShape;
  readonly #slices: number;
  readonly #first: number;
  readonly #parts: number;
  /** Cells of one stage: a cell is a part of a micro-batch in a stage. */
  readonly #row: number;
  readonly #cells: number;
  /** 1 for each cell that has an R; undefined if there is no R. */
  readonly #recomputes: Uint8Array | undefined;
  /** For each stage the skip routes that begin or end there; undefined for a chain. */
  readonly #routes: readonly StageRoutes[] | undefined;

  /** @param lists The lists that may have parts and recomputations. */
  constructor(shape: StepShape, lists: readonly ActionList[] = []) {
    const { stages, microBatches, slices = 1, edges, first = 0, joinsNeighbours } = shape;
    this.#shape = shape;
    this.#slices = slices;
    this.#first = first;
    const parts = this.#parts = shape.parts ?? slices * halvesOf({ lists, slices });
    this.#row = microBatches * parts;
    this.#cells = stages * this.#row;
    this.#recomputes = this.#recomputed(lists);
    this.outputCount = (this.#recomputes ? 3 : 2) * this.#cells;
    this.outputs = new Int32Array(parts);
    this.#routes = stageRoutes(stages, edges, joinsNeighbours);
    const skips = (this.#routes ?? []).map(({ toForward, toBackward }) =>
      Math.max(toForward.length, toBackward.length)
    );
    // A slice also waits for the one before.
    const inputs = 1 + parts * (INPUTS_MAX + Math.max(0, ...skips));
    this.inputs = new Int32Array(inputs);
    this.edges = new Int32Array(inputs);
  }

  #recomputed(lists: readonly ActionList[]): Uint8Array | undefined {
    let recomputes: Uint8Array | undefined;
    for (const list of lists) {
      for (const { stage, microBatch, index, count } of partsOf(list, KIND.R)) {
        const first = this.cellOf(stage, microBatch, index), end = first + this.#cellsOf(count);
        (recomputes ??= new Uint8Array(this.#cells)).fill(1, first, end);
      }
    }
    return recomputes;
  }

  /** The number of a part of a micro-batch in a stage. */
  cellOf(stage: number, microBatch: number, index = 0): number {
    return stage * this.#row + (microBatch - this.#first) * this.#parts + index;
  }

  /** The number of cells of an action of one of `count` parts: an action of a whole one has all. */
  #cellsOf(count: number): number {
    return count === 1 ? this.#parts : 1;
  }

  /** The worker of a stage and micro-batch. */
  hostOf(stage: number, microBatch: number): number {
    const { hosts, pipelineOf, stages } = this.#shape;
    return hosts[pipelineOf[microBatch - this.#first]! * stages + stage]!;
  }

  /** Writes the inputs of a plain action into `inputs` and `edges`. @returns the number of inputs. */
  inputsOf(kind: number, stage: number, microBatch: number, index = 0, count = 1): number {
    const here = this.cellOf(stage, microBatch, index), cells = this.#cellsOf(count);
    const isForward = kind === KIND.F, gradient = OUTPUT.gradient * this.#cells;
    if (kind === KIND.W) return this.#put(0, gradient + here, cells, -1);
    let all = isForward ? 0 : this.#put(0, here, cells, -1);
    if (kind === KIND.R) return all;
    if (!isForward && this.#recomputes?.[here] === 1) {
      all = this.#put(all, OUTPUT.recomputed * this.#cells + here, cells, -1);
    }
    const group = isForward ? OUTPUT.forward : gradient, step = isForward ? -1 : 1;
    const slice = index + step, from = stage + step;
    if (this.#slices > 1 && slice >= 0 && slice < this.#slices) {
      all = this.#put(all, group + here + step, 1, -1);
    }
    if (from >= 0 && from < this.#shape.stages) {
      const edge = this.#between(Math.min(stage, from), from, stage, microBatch);
      all = this.#put(all, group + here + step * this.#row, cells, edge);
    }
    if (this.#routes === undefined) return all;
    for (const { from, number } of this.#routes[stage]![isForward ? "toForward" : "toBackward"]) {
      const edge = this.#between(number, from, stage, microBatch);
      all = this.#put(all, group + this.cellOf(from, microBatch, index), cells, edge);
    }
    return all;
  }

  /** The number of an edge or route; -1 if both of its stages are on one worker. */
  #between(number: number, from: number, to: number, microBatch: number): number {
    return this.hostOf(from, microBatch) === this.hostOf(to, microBatch) ? -1 : number;
  }

  /** Writes the inputs of a part of a list. @returns the number of inputs. */
  inputsAt(list: ActionList, part: number): number {
    const stage = list.stageAt(part), index = list.indexAt(part), count = list.countAt(part);
    return this.inputsOf(list.kindAt(part), stage, list.microBatchAt(part), index, count);
  }

  /** Writes the outputs of a part of a list. @returns the number of outputs. */
  outputsAt(list: ActionList, part: number): number {
    const stage = list.stageAt(part), index = list.indexAt(part), count = list.countAt(part);
    return this.outputsOf(list.kindAt(part), stage, list.microBatchAt(part), index, count);
  }

  /** Writes the outputs of some cells in a row as inputs. @returns the number of inputs so far. */
  #put(count: number, first: number, cells: number, edge: number): number {
    for (let i = 0; i < cells; i++) {
      this.inputs[count + i] = first + i;
      this.edges[count + i] = edge;
    }
    return count + cells;
  }

  /** Writes the outputs of a plain action into `outputs`. @returns their number; 0 for a W. */
  outputsOf(kind: number, stage: number, microBatch: number, index = 0, count = 1): number {
    if (kind === KIND.W) return 0;
    const backward = kind === KIND.R ? OUTPUT.recomputed : OUTPUT.gradient;
    const group = kind === KIND.F ? OUTPUT.forward : backward, cells = this.#cellsOf(count);
    const first = group * this.#cells + this.cellOf(stage, microBatch, index);
    for (let i = 0; i < cells; i++) this.outputs[i] = first + i;
    return cells;
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
  followersOf({ kind, stage, microBatch, part }: Action): Action[] {
    const followers: Action[] = [], last = this.#shape.stages - 1;
    const add = (kind: Action["kind"], stage: number, own = part) =>
      void followers.push({ kind, stage, microBatch, ...own && { part: own } });
    const { index, count } = part ?? WHOLE, isSlice = this.#slices > 1;
    if (kind === "W") return followers;
    if (kind === "R") add("B", stage);
    else if (kind === "F") {
      if (stage < last) add("F", stage + 1);
      if (isSlice && index < count - 1) add("F", stage, { index: index + 1, count });
      if (this.#recomputes?.[this.cellOf(stage, microBatch, index)] === 1) add("R", stage);
      else if (stage === last) add("B", stage);
    } else {
      if (stage > 0) add("B", stage - 1);
      if (isSlice && index > 0) add("B", stage, { index: index - 1, count });
      if (kind === "I") add("W", stage);
    }
    return followers;
  }

  /** The skip routes over which the output of a plain action leaves. */
  routesFrom({ kind, stage }: Action): readonly SkipRoute[] {
    return this.#routes === undefined ? NO_ROUTES : leaving(this.#routes, kind, stage);
  }

  /** The parts of a backward to which skip edges may bring gradients of parts and of the whole. */
  get mixedParts(): readonly Part[] {
    return this.#parts > this.#slices && this.#routes !== undefined ? cutInto(this.#parts) : [];
  }

  /** Returns the action that gives an output; for any backward, a B that is not halved. */
  describe(output: number) {
    const cell = output % this.#cells, count = this.#slices;
    return {
      kind: (["F", "B", "R"] as const)[Math.floor(output / this.#cells)]!,
      stage: Math.floor(cell / this.#row),
      microBatch: this.#first + Math.floor(cell % this.#row / this.#parts),
      ...count > 1 && { part: { index: cell % count, count } },
    };
  }
}

/** A constant, since a simulation asks for each action. */
const NO_ROUTES: readonly SkipRoute[] = [];

/** Readiness of the actions of one step, by the outputs made and the messages arrived so far. */
export class Readiness extends Dependencies {
  /** 1 for each output that was made. */
  readonly #given: Uint8Array;
  /** For each output, the messages that have arrived for the action that makes it. */
  readonly #arrived: Uint8Array;
  readonly #mixedParts = this.mixedParts;
  /** The backwards of {@linkcode mixedParts} that were offered. */
  readonly #offered = new Set<string>();

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
    if (action.kind !== "B" || this.#mixedParts.length === 0) {
      if (this.isReady(action)) ready.push(action);
      return;
    }
    for (const part of this.#mixedParts) {
      const one = { ...action, part }, name = formatAction(one);
      if (this.#offered.has(name) || !this.isReady(one)) continue;
      this.#offered.add(name);
      ready.push(one);
    }
  }

  /** True if all inputs of an action are here: outputs of its worker, and messages from others. */
  isReady(action: Action): boolean {
    const { kind, stage, microBatch, part: { index, count } = WHOLE } = action;
    const inputs = this.inputsOf(KIND[kind], stage, microBatch, index, count);
    let missing = 0;
    for (let i = inputs - 1; i >= 0; i--) {
      if (this.edges[i]! >= 0) missing++;
      else if (this.#given[this.inputs[i]!] === 0) return false;
    }
    for (let i = this.#readOutputs(action) - 1; i >= 0; i--) {
      missing -= this.#arrived[this.outputs[i]!]!;
    }
    return missing <= 0; // an injected micro-batch is a message, too
  }

  #readOutputs({ kind, stage, microBatch, part = WHOLE }: Action): number {
    return this.outputsOf(KIND[kind], stage, microBatch, part.index, part.count);
  }
}
