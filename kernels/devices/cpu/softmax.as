/** Softmax over the last axis, its gradient, its logarithm, and cross entropy. */

import { exponential, logarithm, LOWEST } from "./exponential";
import { bytesOf, kept, largestOf, load, NUMBER, store, sumOf, VECTOR, wholeOf } from "./vectors";

/** Returns the largest number of a row, without NaN; −∞ for an empty row. */
// @ts-ignore: decorator
@inline
function largest(x: usize, bytes: usize, whole: usize): f32 {
  let most = f32x4.splat(-Infinity), also = most;
  let at: usize = 0;
  const pairs = whole & ~31;
  for (; at < pairs; at += 2 * VECTOR) {
    most = f32x4.pmax(most, v128.load(x + at));
    also = f32x4.pmax(also, v128.load(x + at, 16));
  }
  for (; at < whole; at += VECTOR) most = f32x4.pmax(most, v128.load(x + at));
  for (; at < bytes; at += NUMBER) most = f32x4.pmax(most, v128.load_splat<f32>(x + at));
  return largestOf(f32x4.pmax(most, also));
}

/** e^(x − top), written to y where `writes`. */
// @ts-ignore: decorator
@inline
function powers(x: usize, top: v128, y: usize, isWhole: bool, writes: bool): v128 {
  const given = f32x4.sub(load(x, isWhole), top);
  // Half of the scores of causal attention are masked.
  const power = v128.all_true<i32>(f32x4.lt(given, f32x4.splat(LOWEST)))
    ? f32x4.splat(0)
    : exponential(given);
  if (writes) store(y, power, isWhole);
  return kept(power, isWhole);
}

/** Σ e^(x − top) of a row. */
// @ts-ignore: decorator
@inline
function sumOfPowers(x: usize, top: f32, y: usize, bytes: usize, whole: usize, writes: bool): f32 {
  const tops = f32x4.splat(top);
  let sum = f32x4.splat(0), also = sum;
  let at: usize = 0;
  const pairs = whole & ~31;
  for (; at < pairs; at += 2 * VECTOR) {
    sum = f32x4.add(sum, powers(x + at, tops, y + at, true, writes));
    also = f32x4.add(also, powers(x + at + VECTOR, tops, y + at + VECTOR, true, writes));
  }
  for (; at < whole; at += VECTOR) sum = f32x4.add(sum, powers(x + at, tops, y + at, true, writes));
  for (; at < bytes; at += NUMBER) also = f32x4.add(also, powers(x + at, tops, y + at, false, writes));
  return sumOf(f32x4.add(sum, also));
}

/** y = softmax(x) of each row. */
export function softmax(rows: i32, columns: i32, x: usize, y: usize): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  for (let row = 0; row < rows; row++, x += bytes, y += bytes) {
    const sum = sumOfPowers(x, largest(x, bytes, whole), y, bytes, whole, true);
    const factor = f32x4.splat(1 / sum);
    let at: usize = 0;
    for (; at < whole; at += VECTOR) store(y + at, f32x4.mul(load(y + at, true), factor), true);
    for (; at < bytes; at += NUMBER) store(y + at, f32x4.mul(load(y + at, false), factor), false);
  }
}

/** dx = y·(dy − Σ y·dy) of each row. */
export function softmaxGrad(rows: i32, columns: i32, dy: usize, y: usize, dx: usize): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes), pairs = whole & ~31;
  for (let row = 0; row < rows; row++, dy += bytes, y += bytes, dx += bytes) {
    let sum = f32x4.splat(0), also = sum;
    let at: usize = 0;
    for (; at < pairs; at += 2 * VECTOR) {
      sum = f32x4.add(sum, f32x4.mul(v128.load(dy + at), v128.load(y + at)));
      also = f32x4.add(also, f32x4.mul(v128.load(dy + at, 16), v128.load(y + at, 16)));
    }
    for (; at < whole; at += VECTOR) sum = f32x4.add(sum, f32x4.mul(v128.load(dy + at), v128.load(y + at)));
    for (; at < bytes; at += NUMBER) also = f32x4.add(also, f32x4.mul(load(dy + at, false), load(y + at, false)));
    const total = f32x4.splat(sumOf(f32x4.add(sum, also)));
    at = 0;
    for (; at < whole; at += VECTOR) {
      store(dx + at, f32x4.mul(load(y + at, true), f32x4.sub(load(dy + at, true), total)), true);
    }
    for (; at < bytes; at += NUMBER) {
      store(dx + at, f32x4.mul(load(y + at, false), f32x4.sub(load(dy + at, false), total)), false);
    }
  }
}

/** y = ln softmax(x) of each row. */
export function logSoftmax(rows: i32, columns: i32, x: usize, y: usize): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  for (let row = 0; row < rows; row++, x += bytes, y += bytes) {
    const top = largest(x, bytes, whole), tops = f32x4.splat(top);
    const sum = sumOfPowers(x, top, y, bytes, whole, false);
    const rest = f32x4.splat(sum < Infinity ? <f32>logarithm(sum) : sum);
    let at: usize = 0;
    for (; at < whole; at += VECTOR) {
      store(y + at, f32x4.sub(f32x4.sub(load(x + at, true), tops), rest), true);
    }
    for (; at < bytes; at += NUMBER) {
      store(y + at, f32x4.sub(f32x4.sub(load(x + at, false), tops), rest), false);
    }
  }
}

/** −ln softmax(x)[target] of each row; 0 where the target is −1, NaN where it is no class. */
export function crossEntropy(rows: i32, columns: i32, x: usize, targets: usize, loss: usize): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  for (let row = 0; row < rows; row++, x += bytes) {
    const target = i32.load(targets + bytesOf(row));
    let value: f32 = 0;
    if (<u32>target < <u32>columns) {
      const top = largest(x, bytes, whole), sum = sumOfPowers(x, top, x, bytes, whole, false);
      const rest: f32 = sum < Infinity ? <f32>logarithm(sum) : sum;
      value = rest - (f32.load(x + bytesOf(target)) - top);
    } else if (target !== -1) {
      value = <f32>NaN;
    }
    f32.store(loss + bytesOf(row), value);
  }
}
