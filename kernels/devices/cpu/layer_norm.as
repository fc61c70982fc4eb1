/** Layer normalization of rows, and its gradients. */

import { bytesOf, kept, load, NUMBER, store, sumOf, VECTOR, wholeOf } from "./vectors";

/** (x − μ)/σ. */
// @ts-ignore: decorator
@inline
function normal(x: usize, mean: v128, inverse: v128, isWhole: bool): v128 {
  return f32x4.mul(f32x4.sub(load(x, isWhole), mean), inverse);
}

/**
 * y = (x − μ)/σ·weight + bias of each row.
 *
 * @param bias may be 0; so may the addresses for μ and 1/σ.
 */
export function layerNorm(
  rows: i32,
  columns: i32,
  x: usize,
  weight: usize,
  bias: usize,
  y: usize,
  means: usize,
  inverses: usize,
  epsilon: f32,
): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  const share: f32 = 1 / <f32>columns;
  for (let row = 0; row < rows; row++, x += bytes, y += bytes) {
    let sum = f32x4.splat(0);
    let at: usize = 0;
    for (; at < whole; at += VECTOR) sum = f32x4.add(sum, load(x + at, true));
    for (; at < bytes; at += NUMBER) sum = f32x4.add(sum, load(x + at, false));
    const mean: f32 = sumOf(sum) * share, means4 = f32x4.splat(mean);
    sum = f32x4.splat(0);
    for (at = 0; at < whole; at += VECTOR) sum = f32x4.add(sum, square(x + at, means4, true));
    for (; at < bytes; at += NUMBER) sum = f32x4.add(sum, square(x + at, means4, false));
    const inverse: f32 = 1 / sqrt(sumOf(sum) * share + epsilon), inverses4 = f32x4.splat(inverse);
    for (at = 0; at < whole; at += VECTOR) {
      scaled(x + at, means4, inverses4, weight + at, bias, at, y + at, true);
    }
    for (; at < bytes; at += NUMBER) {
      scaled(x + at, means4, inverses4, weight + at, bias, at, y + at, false);
    }
    if (means) f32.store(means + bytesOf(row), mean);
    if (inverses) f32.store(inverses + bytesOf(row), inverse);
  }
}

// @ts-ignore: decorator
@inline
function square(x: usize, mean: v128, isWhole: bool): v128 {
  const centred = kept(f32x4.sub(load(x, isWhole), mean), isWhole);
  return f32x4.mul(centred, centred);
}

// @ts-ignore: decorator
@inline
function scaled(
  x: usize,
  mean: v128,
  inverse: v128,
  weight: usize,
  bias: usize,
  at: usize,
  y: usize,
  isWhole: bool,
): void {
  const value = f32x4.mul(normal(x, mean, inverse, isWhole), load(weight, isWhole));
  store(y, bias ? f32x4.add(value, load(bias + at, isWhole)) : value, isWhole);
}

/** With f = dy·weight and x̂ = (x − μ)/σ: dx = (f − mean f − x̂·mean(f·x̂))/σ of each row. */
export function layerNormInputGrad(
  rows: i32,
  columns: i32,
  dy: usize,
  x: usize,
  means: usize,
  inverses: usize,
  weight: usize,
  dx: usize,
): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  const share: f32 = 1 / <f32>columns;
  for (let row = 0; row < rows; row++, dy += bytes, x += bytes, dx += bytes) {
    const mean = v128.load_splat<f32>(means + bytesOf(row));
    const inverse = v128.load_splat<f32>(inverses + bytesOf(row));
    let sum = f32x4.splat(0), product = sum;
    let at: usize = 0;
    for (; at < whole; at += VECTOR) {
      const f = f32x4.mul(load(dy + at, true), load(weight + at, true));
      sum = f32x4.add(sum, f);
      product = f32x4.add(product, f32x4.mul(f, normal(x + at, mean, inverse, true)));
    }
    for (; at < bytes; at += NUMBER) {
      const f = f32x4.mul(load(dy + at, false), load(weight + at, false));
      sum = f32x4.add(sum, f);
      product = f32x4.add(product, f32x4.mul(f, normal(x + at, mean, inverse, false)));
    }
    const meanF = f32x4.splat(sumOf(sum) * share), meanProduct = f32x4.splat(sumOf(product) * share);
    for (at = 0; at < whole; at += VECTOR) {
      centred(dy + at, x + at, mean, inverse, weight + at, meanF, meanProduct, dx + at, true);
    }
    for (; at < bytes; at += NUMBER) {
      centred(dy + at, x + at, mean, inverse, weight + at, meanF, meanProduct, dx + at, false);
    }
  }
}

// @ts-ignore: decorator
@inline
function centred(
  dy: usize,
  x: usize,
  mean: v128,
  inverse: v128,
  weight: usize,
  meanF: v128,
  meanProduct: v128,
  dx: usize,
  isWhole: bool,
): void {
  const f = f32x4.mul(load(dy, isWhole), load(weight, isWhole));
  const shift = f32x4.mul(normal(x, mean, inverse, isWhole), meanProduct);
  store(dx, f32x4.mul(f32x4.sub(f32x4.sub(f, meanF), shift), inverse), isWhole);
}

/**
 * d weight = Σ dy·x̂ and d bias = Σ dy over the rows, in order.
 *
 * @param dWeight may be 0; so may `dBias`.
 */
export function layerNormWeightGrad(
  rows: i32,
  columns: i32,
  dy: usize,
  x: usize,
  means: usize,
  inverses: usize,
  dWeight: usize,
  dBias: usize,
): void {
  const bytes = bytesOf(columns), whole = wholeOf(bytes);
  if (dWeight) memory.fill(dWeight, 0, bytes);
  if (dBias) memory.fill(dBias, 0, bytes);
  for (let row = 0; row < rows; row++, dy += bytes, x += bytes) {
    const mean = v128.load_splat<f32>(means + bytesOf(row));
    const inverse = v128.load_splat<f32>(inverses + bytesOf(row));
    let at: usize = 0;
    for (; at < whole; at += VECTOR) addRow(dy + at, x + at, mean, inverse, dWeight, dBias, at, true);
    for (; at < bytes; at += NUMBER) addRow(dy + at, x + at, mean, inverse, dWeight, dBias, at, false);
  }
}

// @ts-ignore: decorator
@inline
function addRow(
  dy: usize,
  x: usize,
  mean: v128,
  inverse: v128,
  dWeight: usize,
  dBias: usize,
  at: usize,
  isWhole: bool,
): void {
  const given = load(dy, isWhole);
  if (dWeight) {
    const product = f32x4.mul(given, normal(x, mean, inverse, isWhole));
    store(dWeight + at, f32x4.add(load(dWeight + at, isWhole), product), isWhole);
  }
  if (dBias) store(dBias + at, f32x4.add(load(dBias + at, isWhole), given), isWhole);
}
