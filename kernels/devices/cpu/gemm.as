/**
 * Products of matrices, in tiles of four rows and eight columns that stay in registers.
 *
 * Operands are first copied in the order in which tiles read them, in blocks that fit into a core's
 * cache. Every element of a result is a sum over `k` in the same order, independent of the sizes and
 * of its tile: each term is multiplied and added with one rounding if the CPU supports it (as all of
 * the last ten years do), otherwise with two.
 */

import { NUMBER } from "./vectors";

/** Rows and columns of a tile. */
const ROWS = 4, COLUMNS = 8;
/** Sizes of the copied blocks: depth, rows of a, columns of b. */
const DEPTH = 256, BLOCK_ROWS = 128, BLOCK_COLUMNS = 512;
/** Offsets of the copies and a tile in the working memory. */
const B_AT: usize = BLOCK_ROWS * DEPTH * NUMBER, TILE_AT: usize = B_AT + BLOCK_COLUMNS * DEPTH * NUMBER;

/**
 * y = alpha·a·b + c, where a is [m, k] and b is [k, n]; y may overwrite c.
 *
 * @param aRow elements between rows of a; `aColumn` is the same for columns.
 * @param c 0 for no addend.
 * @param cRow elements between rows of c: 0 if it is one row.
 * @param work address of working memory: see `GEMM_WORK_BYTES`.
 */
export function gemm(
  m: i32,
  n: i32,
  k: i32,
  a: usize,
  aRow: i32,
  aColumn: i32,
  b: usize,
  bRow: i32,
  bColumn: i32,
  c: usize,
  cRow: i32,
  y: usize,
  alpha: f32,
  work: usize,
): void {
  for (let j = 0; j < n; j += BLOCK_COLUMNS) {
    const columns = min(BLOCK_COLUMNS, n - j);
    for (let p = 0; p < max(k, 1); p += DEPTH) {
      const depth = min(DEPTH, k - p);
      pack(columns, COLUMNS, depth, at(b, p, bRow, j, bColumn), bColumn, bRow, 1, work + B_AT);
      const from = p > 0 ? y : c, fromRow = p > 0 ? n : cRow;
      for (let i = 0; i < m; i += BLOCK_ROWS) {
        const rows = min(BLOCK_ROWS, m - i);
        pack(rows, ROWS, depth, at(a, i, aRow, p, aColumn), aRow, aColumn, alpha, work);
        const own = from ? at(from, i, fromRow, j, 1) : 0;
        tiles(rows, columns, depth, work, own, fromRow, at(y, i, n, j, 1), n);
      }
    }
  }
}

/** Returns the address of an element. */
// @ts-ignore: decorator
@inline
function at(start: usize, row: i32, perRow: i32, column: i32, perColumn: i32): usize {
  return start + (<usize>row * perRow + <usize>column * perColumn) * NUMBER;
}

/**
 * Copies `lines` of `depth` numbers in groups of `width` lines, number by number of all lines of a
 * group; lines that a group lacks are zero.
 *
 * @param perLine elements between lines; `perNumber` is the same for numbers of a line.
 */
function pack(
  lines: i32,
  width: i32,
  depth: i32,
  from: usize,
  perLine: i32,
  perNumber: i32,
  factor: f32,
  to: usize,
): void {
  const factors = f32x4.splat(factor), step = <usize>width * NUMBER;
  for (let first = 0; first < lines; first += width) {
    for (let line = first; line < first + width; line += 4) {
      const own = to + <usize>(line - first) * NUMBER;
      if (line + 4 <= lines && perLine === 1) packBeside(depth, at(from, line, 1, 0, 1), perNumber, factors, own, step);
      else if (line + 4 <= lines && perNumber === 1) packAlong(depth, at(from, line, perLine, 0, 1), perLine, factors, own, step);
      else packSingly(min(4, lines - line), depth, at(from, line, perLine, 0, 1), perLine, perNumber, factor, own, step);
    }
    to += step * depth;
  }
}

/** Copies four lines whose numbers are adjacent. */
function packBeside(depth: i32, from: usize, perNumber: i32, factors: v128, to: usize, step: usize): void {
  for (let p = 0; p < depth; p++, to += step) {
    v128.store(to, f32x4.mul(v128.load(at(from, p, perNumber, 0, 1)), factors));
  }
}

/** Copies four separate lines, transposed four numbers at a time. */
function packAlong(depth: i32, from: usize, perLine: i32, factors: v128, to: usize, step: usize): void {
  const line1 = at(from, 1, perLine, 0, 1), line2 = at(from, 2, perLine, 0, 1), line3 = at(from, 3, perLine, 0, 1);
  const whole = depth & ~3;
  let p = 0;
  for (; p < whole; p += 4, to += 4 * step) {
    const offset = <usize>p * NUMBER;
    const r0 = v128.load(from + offset), r1 = v128.load(line1 + offset);
    const r2 = v128.load(line2 + offset), r3 = v128.load(line3 + offset);
    const low01 = v128.shuffle<i32>(r0, r1, 0, 4, 1, 5), high01 = v128.shuffle<i32>(r0, r1, 2, 6, 3, 7);
    const low23 = v128.shuffle<i32>(r2, r3, 0, 4, 1, 5), high23 = v128.shuffle<i32>(r2, r3, 2, 6, 3, 7);
    v128.store(to, f32x4.mul(v128.shuffle<i64>(low01, low23, 0, 2), factors));
    v128.store(to + step, f32x4.mul(v128.shuffle<i64>(low01, low23, 1, 3), factors));
    v128.store(to + 2 * step, f32x4.mul(v128.shuffle<i64>(high01, high23, 0, 2), factors));
    v128.store(to + 3 * step, f32x4.mul(v128.shuffle<i64>(high01, high23, 1, 3), factors));
  }
  const factor = f32x4.extract_lane(factors, 0);
  packSingly(4, depth - whole, from + <usize>whole * NUMBER, perLine, 1, factor, to, step);
}

/** Copies up to four lines with any strides, and zeros for the others. */
function packSingly(
  lines: i32,
  depth: i32,
  from: usize,
  perLine: i32,
  perNumber: i32,
  factor: f32,
  to: usize,
  step: usize,
): void {
  for (let p = 0; p < depth; p++, to += step) {
    for (let line = 0; line < 4; line++) {
      const value: f32 = line < lines ? f32.load(at(from, line, perLine, p, perNumber)) * factor : <f32>0;
      f32.store(to + <usize>line * NUMBER, value);
    }
  }
}

/** Computes all tiles of a block. */
function tiles(
  rows: i32,
  columns: i32,
  depth: i32,
  work: usize,
  c: usize,
  cRow: i32,
  y: usize,
  yRow: i32,
): void {
  const tile = work + TILE_AT, cBytes = <usize>cRow * NUMBER, yBytes = <usize>yRow * NUMBER;
  for (let j = 0; j < columns; j += COLUMNS) {
    const b = work + B_AT + <usize>j * depth * NUMBER;
    for (let i = 0; i < rows; i += ROWS) {
      const a = work + <usize>i * depth * NUMBER;
      const from = c ? at(c, i, cRow, j, 1) : 0, to = at(y, i, yRow, j, 1);
      const height = min(ROWS, rows - i), width = min(COLUMNS, columns - j);
      if (height === ROWS && width === COLUMNS) multiply(depth, a, b, from, cBytes, to, yBytes);
      else {
        multiply(depth, a, b, 0, 0, tile, COLUMNS * NUMBER);
        copyTile(height, width, tile, from, cRow, to, yRow);
      }
    }
  }
}

/** Adds a part of a tile to c. */
function copyTile(height: i32, width: i32, tile: usize, c: usize, cRow: i32, y: usize, yRow: i32): void {
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const value = f32.load(at(tile, row, COLUMNS, column, 1));
      const added: f32 = c ? value + f32.load(at(c, row, cRow, column, 1)) : value;
      f32.store(at(y, row, yRow, column, 1), added);
    }
  }
}

/** Writes two vectors of a row. */
// @ts-ignore: decorator
@inline
function storeRow(c: usize, y: usize, first: v128, second: v128): void {
  if (c) {
    first = f32x4.add(first, v128.load(c));
    second = f32x4.add(second, v128.load(c, 16));
  }
  v128.store(y, first);
  v128.store(y, second, 16);
}

/**
 * Computes one whole tile. Engines keep one of the 16 registers, and twelve sums with their operands
 * need more. Deno compares each address with the size of memory, so a step has only three loads.
 */
function multiply(depth: i32, a: usize, b: usize, c: usize, cBytes: usize, y: usize, yBytes: usize): void {
  let s00 = f32x4.splat(0);
  let s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  for (let p = 0; p < depth; p++, a += ROWS * NUMBER, b += COLUMNS * NUMBER) {
    const column = v128.load(a), b0 = v128.load(b), b1 = v128.load(b, 16);
    const a0 = v128.shuffle<i32>(column, column, 0, 0, 0, 0);
    s00 = f32x4.relaxed_madd(a0, b0, s00);
    s01 = f32x4.relaxed_madd(a0, b1, s01);
    const a1 = v128.shuffle<i32>(column, column, 1, 1, 1, 1);
    s10 = f32x4.relaxed_madd(a1, b0, s10);
    s11 = f32x4.relaxed_madd(a1, b1, s11);
    const a2 = v128.shuffle<i32>(column, column, 2, 2, 2, 2);
    s20 = f32x4.relaxed_madd(a2, b0, s20);
    s21 = f32x4.relaxed_madd(a2, b1, s21);
    const a3 = v128.shuffle<i32>(column, column, 3, 3, 3, 3);
    s30 = f32x4.relaxed_madd(a3, b0, s30);
    s31 = f32x4.relaxed_madd(a3, b1, s31);
  }
  storeRow(c, y, s00, s01);
  storeRow(c ? c + 1 * cBytes : 0, y + 1 * yBytes, s10, s11);
  storeRow(c ? c + 2 * cBytes : 0, y + 2 * yBytes, s20, s21);
  storeRow(c ? c + 3 * cBytes : 0, y + 3 * yBytes, s30, s31);
}
