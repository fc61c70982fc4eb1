/** A building block repeated for each micro-batch, its actions pulled forward while memory allows. */

import { type Action, F, I, W } from "../../actions/action.ts";

/**
 * The slots of worker r for micro-batch 0, in the order in which a micro-batch goes through a V: F
 * of its stage nearer to the input, F of its other stage, I of that, I of the first.
 */
export type BuildingBlock = (r: number, workers: number) => readonly number[];

/** The slots from one micro-batch to the next: a worker has six actions for each. */
const PERIOD = 6;

/** What stands in a slot: the place of an action in the block, a W of either stage, or nothing. */
const PLACES = 4, WEIGHT = 4, EMPTY = 5;

const isForward = (place: number) => place < 2;
const isInput = (place: number) => place === 2 || place === 3;
/** The activations that what stands in a slot adds. */
const lives = (place: number) => isForward(place) ? 1 : place === WEIGHT ? -1 : 0;
/** The I that it adds to those whose W has not run. */
const waits = (place: number) => isInput(place) ? 1 : place === WEIGHT ? -1 : 0;

/** The slots of a worker. */
interface Row {
  /** What stands in each. */
  readonly at: Uint8Array;
  /** The activations that live after each. */
  readonly live: Int16Array;
  /** The I whose W has not run, after each. */
  readonly waiting: Int16Array;
  /** For each place of the block, the slot of each micro-batch. */
  readonly slots: readonly Int32Array[];
}

/**
 * The orders of a building block repeated for every micro-batch, each W in the first free slot
 * after its I, squeezed, and then reordered: from the first slot on, each action moves to the first
 * free slot after its inputs, as long as no worker holds more activations than one held before.
 *
 * [Note: reordering a block] A repeated block is dense in the middle of a step; while the pipeline
 * fills and drains it leaves slots in which later actions could run (Qi et al. 2024, "Pipeline
 * Parallelism with Controllable Memory", section 3.3). A forward that runs earlier lives longer, so
 * it passes slots that have room for one more activation and no others. A W only makes room, and no
 * other worker waits for it: an I takes its slot, and it the slot of the I, where there is room. The
 * middle begins with the first gradient that comes back to worker 0 and ends with its last forward.
 *
 * @param isSteady Whether the middle stays as the block has it. A pattern that repeats stays good
 * when actions do not take the same time; one that is pulled saves a little when they do.
 */
export function pulledOrders(
  workers: number,
  microBatches: number,
  block: BuildingBlock,
  isSteady: boolean,
): Action[][] {
  const blocks = Array.from({ length: workers }, (_, r) => block(r, workers));
  const length = Math.max(...blocks.map((slots) => Math.max(...slots))) + PERIOD * microBatches;
  const rows = squeezed(blocks.map((slots) => repeated(slots, microBatches, length)), microBatches);
  pullAll(rows, isSteady);
  return rows.map(({ at }, worker) => actionsOf(at, worker, 2 * workers - 1 - worker));
}

/** Repeats a block, with each W in the first free slot after its I. */
function repeated(block: readonly number[], microBatches: number, length: number): Uint8Array {
  const at = new Uint8Array(length).fill(EMPTY);
  block.forEach((first, place) => {
    for (let i = 0; i < microBatches; i++) at[first + PERIOD * i] = place;
  });
  let weights = 0;
  at.forEach((place, slot) => {
    if (place === EMPTY && weights > 0) at[slot] = WEIGHT;
    weights += waits(at[slot] as number);
  });
  return at;
}

/** Gives each action the first slot after its inputs and after the one before it. */
function squeezed(repeated: readonly Uint8Array[], microBatches: number): Row[] {
  const length = repeated[0]?.length ?? 0;
  const rows = repeated.map((): Row => ({
    at: new Uint8Array(length).fill(EMPTY),
    live: new Int16Array(length),
    waiting: new Int16Array(length),
    slots: Array.from({ length: PLACES }, () => new Int32Array(microBatches)),
  }));
  const next = rows.map(() => new Int32Array(PLACES)), free = new Int32Array(rows.length);
  for (let slot = 0; slot < length; slot++) {
    rows.forEach((row, worker) => {
      const place = repeated[worker]?.[slot] as number;
      if (place === EMPTY) return;
      let to = free[worker] as number;
      if (place !== WEIGHT) {
        const microBatch = takeNext(next[worker] as Int32Array, place);
        to = Math.max(to, afterInputs(rows, worker, place, microBatch));
        (row.slots[place] as Int32Array)[microBatch] = to;
      }
      row.at[to] = place;
      free[worker] = to + 1;
    });
  }
  for (const { at, live, waiting } of rows) {
    let [held, weights] = [0, 0];
    at.forEach((place, slot) => {
      live[slot] = held += lives(place);
      waiting[slot] = weights += waits(place);
    });
  }
  return rows;
}

/** The micro-batch whose turn it is. */
function takeNext(next: Int32Array, place: number): number {
  const microBatch = next[place] as number;
  next[place] = microBatch + 1;
  return microBatch;
}

/** Moves each action to the first slot that it may take. */
function pullAll(rows: readonly Row[], isSteady: boolean): void {
  const most = rows.reduce((all, { live }) => live.reduce((a, b) => Math.max(a, b), all), 0);
  const [first] = rows as [Row];
  const next = rows.map(() => new Int32Array(PLACES));
  const begin = first.slots[PLACES - 1]?.[0] ?? 0, end = first.slots[0]?.at(-1) ?? 0;
  for (let slot = 0; slot < first.at.length; slot++) {
    const stays = isSteady && slot >= begin && slot <= end;
    rows.forEach((row, worker) => {
      const place = row.at[slot] as number;
      if (place === WEIGHT && !stays) pullWeight(row, slot);
      if (place >= PLACES) return;
      const microBatch = takeNext(next[worker] as Int32Array, place);
      if (stays) return;
      const from = afterInputs(rows, worker, place, microBatch);
      (row.slots[place] as Int32Array)[microBatch] = pull(row, slot, from, most);
    });
  }
}

/** The first slot after what an action waits for, and after the same one of the micro-batch before. */
function afterInputs(
  rows: readonly Row[],
  worker: number,
  place: number,
  microBatch: number,
): number {
  const endOf = (row: Row | undefined, place: number, microBatch: number) =>
    (row?.slots[place]?.[microBatch] ?? -1) + 1;
  const own = rows[worker];
  // The first stage's F and the second one's I come from the worker before, the others from that after.
  const from = rows[place % 2 === 0 ? worker - 1 : worker + 1];
  return Math.max(
    endOf(from, place, microBatch),
    endOf(own, place - 1, microBatch),
    endOf(own, place, microBatch - 1),
  );
}

/** Moves an F or an I to the first slot that it may take, and gives that. */
function pull(row: Row, slot: number, from: number, most: number): number {
  const { at, live, waiting } = row, place = at[slot] as number;
  let to = slot, room = Infinity;
  for (let before = slot - 1; before >= from; before--) {
    room = Math.min(room, most - (live[before] as number));
    if (isForward(place) && room < 1) break;
    const isSwap = at[before] === WEIGHT && isInput(place) && room > 0;
    if (at[before] === EMPTY || isSwap) to = before;
  }
  if (to === slot) return slot;
  const other = at[to] as number;
  at[slot] = other;
  at[to] = place;
  add(live, to, slot, lives(place) - lives(other));
  add(waiting, to, slot, waits(place) - waits(other));
  if (other === WEIGHT) pullWeight(row, slot);
  return to;
}

/** Moves a W to the first free slot that has another W before it or no I that waits for one. */
function pullWeight({ at, live, waiting }: Row, slot: number): void {
  let to = slot;
  for (let before = slot - 1; at[before] !== WEIGHT && (waiting[before] ?? 0) > 0; before--) {
    if (at[before] === EMPTY) to = before;
  }
  at[slot] = EMPTY;
  at[to] = WEIGHT;
  add(live, to, slot, -1);
  add(waiting, to, slot, -1);
}

function add(counts: Int16Array, begin: number, end: number, difference: number): void {
  if (difference === 0) return;
  for (let slot = begin; slot < end; slot++) counts[slot] = (counts[slot] as number) + difference;
}

/** The actions of a worker's slots. */
function actionsOf(at: Uint8Array, near: number, far: number): Action[] {
  const makers = [F, F, I, I], stages = [near, far, far, near], next = new Int32Array(PLACES);
  const order: Action[] = [], weights: Action[] = [];
  for (const place of at) {
    if (place === WEIGHT) order.push(...weights.splice(0, 1));
    const make = makers[place];
    if (make === undefined) continue;
    const stage = stages[place] as number, microBatch = takeNext(next, place);
    order.push(make(stage, microBatch));
    if (isInput(place)) weights.push(W(stage, microBatch));
  }
  return [...order, ...weights];
}
