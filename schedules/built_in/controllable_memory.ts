/** V-Half and V-Min: zero-bubble schedules in a V with a half or a third of the activations. */

import { type Action, F, I, W } from "../action.ts";
import { analyze } from "../analysis/analyze.ts";
import {
  defineMade,
  defineSchedule,
  requireFull,
  type ScheduleDefinition,
  wave,
} from "../define.ts";
import { withOrders } from "../schedule.ts";

/**
 * The slots of worker r for micro-batch 0, in the order in which a micro-batch passes a V: F of the
 * stage nearer to the input, F of the other stage, I of the other stage, I of the nearer stage.
 */
type BuildingBlock = (r: number, workers: number) => readonly number[];

/** The slots from one micro-batch to the next: a worker has six actions for each micro-batch. */
const PERIOD = 6;

/** Contents of a slot: the place of an action in the block (0 to 3), a W of either stage, or empty. */
const PLACES = 4, WEIGHT = 4, EMPTY = 5;

const isInput = (place: number) => place === 2 || place === 3;
/** The activations that a slot with these contents adds. */
const lives = (place: number) => place < 2 ? 1 : place === WEIGHT ? -1 : 0;
/** The number of I without their W that a slot with these contents adds. */
const waits = (place: number) => isInput(place) ? 1 : place === WEIGHT ? -1 : 0;

/** The slots of a worker. */
interface Row {
  /** Contents of each slot. */
  readonly at: Uint8Array;
  /** Live activations after each slot. */
  readonly live: Int16Array;
  /** The number of I whose W has not run, after each slot. */
  readonly waiting: Int16Array;
  /** For each place of the block, the slot of each micro-batch. */
  readonly slots: readonly Int32Array[];
}

/** A pass over all slots, from the first on. */
interface Pass {
  /** The actions that move: all, those while the pipeline fills and drains, or while it drains. */
  readonly moves: "all" | "ends" | "drain";
  /**
   * The W while F and I move. `stay`: they keep their slots, in a block that is not squeezed before.
   * `swap`: an I takes the slot of a W, and the W that of the I. `follow`: F and I take any slot of a
   * W, and each W the first free slot after its I, those of the later stage first.
   */
  readonly weights: "stay" | "swap" | "follow";
}

/**
 * Variants of reordering a block. A middle that repeats stays good if actions take different times;
 * a middle whose actions move too saves a little if they take the same. The last variant is the one
 * of the paper's authors.
 */
const VARIANTS: readonly (readonly Pass[])[] = [
  [{ moves: "ends", weights: "swap" }],
  [{ moves: "all", weights: "swap" }],
  [{ moves: "ends", weights: "stay" }, { moves: "drain", weights: "follow" }],
];

/**
 * The orders of a building block repeated for every micro-batch, each W in the first free slot
 * after its I, squeezed, and then reordered by each variant: from the first slot on, each action moves
 * to the first free slot after its inputs, if no worker then holds more activations than the most of
 * any worker before.
 *
 * [Note: reordering a block] A repeated block is dense in the middle of a step; while the pipeline
 * fills and drains it leaves slots in which later actions could run (Qi et al. 2024, "Pipeline
 * Parallelism with Controllable Memory", section 3.3). A forward that runs earlier lives longer, so
 * it passes only slots that have room for one more activation. A W frees memory, and no other worker
 * waits for it, so it gives way while there is room. The middle begins with the first gradient that
 * returns to worker 0 and ends with its last forward.
 *
 * @returns For each variant, the order of each worker.
 */
function pulledOrders(
  workers: number,
  microBatches: number,
  block: BuildingBlock,
): Action[][][] {
  const blocks = Array.from({ length: workers }, (_, r) => block(r, workers));
  const length = Math.max(...blocks.map((slots) => Math.max(...slots))) + PERIOD * microBatches;
  return VARIANTS.map((passes) => {
    let rows = blocks.map((slots) => repeated(slots, emptyRow(length, microBatches)));
    for (const pass of passes) {
      if (pass.weights !== "stay") rows = squeezed(rows);
      pullAll(rows, pass);
    }
    const isFarFirst = passes.at(-1)?.weights === "follow";
    return rows.map(({ at }, r) => actionsOf(at, r, 2 * workers - 1 - r, isFarFirst));
  });
}

function emptyRow(length: number, microBatches: number): Row {
  return {
    at: new Uint8Array(length).fill(EMPTY),
    live: new Int16Array(length),
    waiting: new Int16Array(length),
    slots: Array.from({ length: PLACES }, () => new Int32Array(microBatches)),
  };
}

/** Repeats a block in an empty row. */
function repeated(block: readonly number[], row: Row): Row {
  block.forEach((first, place) => {
    const slots = row.slots[place]!;
    slots.forEach((_, i) => row.at[slots[i] = first + PERIOD * i] = place);
  });
  count(row, 0, row.at.length, true);
  return row;
}

/**
 * Counts live activations and waiting I after each slot; false at the first slot with more than
 * `most` live. If W follow, it puts each of them into the first free slot after its I.
 */
function count(row: Row, begin: number, end: number, follows: boolean, most = Infinity): boolean {
  const { at, live, waiting } = row;
  for (let slot = begin; slot < end; slot++) {
    const before = waiting[slot - 1] ?? 0;
    if (follows && at[slot]! >= WEIGHT) at[slot] = before > 0 ? WEIGHT : EMPTY;
    const place = at[slot]!;
    waiting[slot] = before + waits(place);
    live[slot] = (live[slot - 1] ?? 0) + lives(place);
    if (live[slot]! > most) return false;
  }
  return true;
}

/** Gives each action the first slot after its inputs and after the action before it. */
function squeezed(rows: readonly Row[]): Row[] {
  const result = rows.map(({ at, slots }) => emptyRow(at.length, slots[0]!.length));
  const next = rows.map(() => new Int32Array(PLACES)), free = new Int32Array(rows.length);
  for (let slot = 0; slot < rows[0]!.at.length; slot++) {
    result.forEach((row, worker) => {
      const place = rows[worker]!.at[slot]!;
      if (place === EMPTY) return;
      let to = free[worker]!;
      if (place !== WEIGHT) {
        const microBatch = next[worker]![place]!++;
        to = Math.max(to, afterInputs(result, worker, place, microBatch));
        row.slots[place]![microBatch] = to;
      }
      row.at[to] = place;
      free[worker] = to + 1;
    });
  }
  return result;
}

/** Moves each action to the first slot that is free for it. */
function pullAll(rows: readonly Row[], { moves, weights }: Pass): void {
  const follows = weights === "follow", [first] = rows as [Row];
  for (const row of rows) count(row, 0, row.at.length, follows);
  const most = rows.reduce((all, { live }) => live.reduce((a, b) => Math.max(a, b), all), 0);
  const next = rows.map(() => new Int32Array(PLACES));
  // Each slot of each worker is a turn. The authors' middle ends with the turn of the earliest last
  // forward in it, of any worker, or not at all; that of the other variants with a slot of all.
  const turnOf = (slot: number, worker: number) => slot * rows.length + worker;
  const begin = turnOf(first.slots[3]![0]!, 0);
  const lasts = rows.map(({ slots }, worker) => turnOf(slots[0]!.at(-1)!, worker));
  const end = weights === "swap"
    ? lasts[0]! + rows.length - 1
    : Math.min(...lasts.filter((last) => last >= begin));
  for (let slot = 0; slot < first.at.length; slot++) {
    rows.forEach((row, worker) => {
      count(row, slot, slot + 1, follows);
      const turn = turnOf(slot, worker);
      const isMoved = moves === "all" || turn > end || (moves === "ends" && turn < begin);
      const place = row.at[slot]!;
      if (place === WEIGHT && isMoved && !follows) pullWeight(row, slot);
      if (place >= PLACES) return;
      const microBatch = next[worker]![place]!++;
      if (!isMoved) return;
      const from = afterInputs(rows, worker, place, microBatch);
      row.slots[place]![microBatch] = pull(row, slot, from, most, weights);
    });
  }
}

/** The first slot after the inputs of an action, and after the same action of the micro-batch before. */
function afterInputs(rows: readonly Row[], r: number, place: number, m: number): number {
  const endOf = (r: number, place: number, m: number) => (rows[r]?.slots[place]?.[m] ?? -1) + 1;
  // F of the first stage and I of the second come from the worker before, the others from the next.
  const from = place % 2 === 0 ? r - 1 : r + 1;
  return Math.max(endOf(from, place, m), endOf(r, place - 1, m), endOf(r, place, m - 1));
}

/** Moves an F or an I to the first slot that is free for it. @returns the slot. */
function pull(
  row: Row,
  slot: number,
  from: number,
  most: number,
  weights: Pass["weights"],
): number {
  const { at } = row, place = at[slot]!, follows = weights === "follow";
  const first = follows || (weights === "swap" && isInput(place)) ? WEIGHT : EMPTY;
  for (let to = from; to < slot; to++) {
    const other = at[to]!;
    if (other < first) continue;
    [at[to], at[slot]] = [place, other];
    if (count(row, to, slot + 1, follows, most)) {
      if (other === WEIGHT && !follows) pullWeight(row, slot);
      return to;
    }
    [at[to], at[slot]] = [other, place];
    count(row, to, slot + 1, follows);
  }
  return slot;
}

/** Moves a W to the first free slot that has another W before it or no waiting I. */
function pullWeight(row: Row, slot: number): void {
  const { at, waiting } = row;
  let to = slot;
  for (let before = slot - 1; at[before] !== WEIGHT && (waiting[before] ?? 0) > 0; before--) {
    if (at[before] === EMPTY) to = before;
  }
  [at[slot], at[to]] = [EMPTY, WEIGHT];
  count(row, to, slot + 1, false);
}

/** The actions of a worker's slots. */
function actionsOf(at: Uint8Array, near: number, far: number, isFarFirst: boolean): Action[] {
  const makers = [F, F, I, I], stages = [near, far, far, near], next = new Int32Array(PLACES);
  const order: Action[] = [], weights: Action[] = [];
  for (const place of at) {
    if (place === WEIGHT) order.push(...weights.splice(0, 1));
    const make = makers[place];
    if (make === undefined) continue;
    const stage = stages[place]!, microBatch = next[place]!++;
    order.push(make(stage, microBatch));
    if (isInput(place)) weights.push(W(stage, microBatch));
    if (isFarFirst) weights.sort((a, b) => b.stage - a.stage);
  }
  return [...order, ...weights];
}

/** Defines the schedule of a block on a V: the shortest of its orders, the first of equal ones. */
function defineBlock(
  { name, summary }: Pick<ScheduleDefinition, "name" | "summary">,
  block: BuildingBlock,
): ScheduleDefinition {
  const empty = defineSchedule({
    name,
    summary,
    check: requireFull,
    place: (options) => wave({ ...options, waves: 1 }),
    order: () => [],
  });
  return defineMade({ name, summary, reads: ["costs"] }, (options) => {
    const { workers, microBatches, costs } = options;
    const base = empty.create({ workers, microBatches });
    const all = pulledOrders(workers, microBatches, block)
      .map((orders) => analyze(withOrders(base, name, orders), costs));
    return all.reduce((a, b) => b.makespan < a.makespan * (1 - 1e-9) ? b : a).schedule;
  });
}

/**
 * V-Half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3): its building
 * block repeated and reordered.
 */
export const vHalf = defineBlock({
  name: "v-half",
  summary: "split backward in a V: about half of 1f1b's activations",
}, (r, P) => {
  const k = P % 2 === 0 ? 3 : 0;
  return [2 * r, 3 * P - r - 2, 3 * P + k + 2 * r - 1, 6 * P + k - r - 2];
});

/** V-Min (the same section). */
export const vMin = defineBlock({
  name: "v-min",
  summary: "split backward in a V: about a third of 1f1b's activations",
}, (r, P) => {
  const k = P % 3 === 0 ? 2 : 0;
  return [r, 2 * P - r - 1, 2 * P + k + r, 4 * P + k - r - 1];
});
