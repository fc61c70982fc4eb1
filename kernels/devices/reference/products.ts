/**
 * Matrix products, summed in f64.
 *
 * @module
 */

import { broadcastShape, elementCount } from "../../graph/shapes.ts";
import {
  broadcastStrides,
  type NdArray,
  ndArray,
  type Operation,
  positions,
  type Values,
} from "./array.ts";

/** A matrix within an array: where it starts and how far apart its rows and columns lie. */
interface Matrix {
  readonly values: Values;
  readonly start: number;
  readonly row: number;
  readonly column: number;
}

/** Sizes of a product [rows, inner] · [inner, columns]. */
interface Sizes {
  readonly rows: number;
  readonly inner: number;
  readonly columns: number;
}

/** a · b, row-major. */
function product(a: Matrix, b: Matrix, { rows, inner, columns }: Sizes): Float64Array {
  const result = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let k = 0; k < inner; k++) {
      const left = a.values[a.start + i * a.row + k * a.column]!;
      const right = b.start + k * b.row;
      for (let j = 0; j < columns; j++) {
        result[i * columns + j]! += left * b.values[right + j * b.column]!;
      }
    }
  }
  return result;
}

/** The last two axes of `array`, transposed or not. */
function matrices(array: NdArray, transposed: boolean) {
  const [height, width] = [array.shape.at(-2)!, array.shape.at(-1)!];
  return {
    batch: array.shape.slice(0, -2),
    size: height * width,
    ...transposed
      ? { rows: width, columns: height, row: 1, column: width }
      : { rows: height, columns: width, row: width, column: 1 },
  };
}

const matMul: Operation = ([a, b], attributes) => {
  if (a!.shape.length < 2 || b!.shape.length < 2) {
    throw new RangeError(
      `Cannot multiply matrices: both must have two axes or more, received [${a!.shape}] and [${
        b!.shape
      }]`,
    );
  }
  const alpha = attributes.number("alpha", 1);
  const x = matrices(a!, attributes.number("transA", 0) === 1);
  const y = matrices(b!, attributes.number("transB", 0) === 1);
  if (x.columns !== y.rows) {
    throw new RangeError(
      `Cannot multiply matrices: inner sizes must be equal, received ${x.columns} and ${y.rows}`,
    );
  }
  const batch = broadcastShape(x.batch, y.batch);
  const from = positions(batch, broadcastStrides(x.batch, batch));
  const other = positions(batch, broadcastStrides(y.batch, batch));
  const sizes = { rows: x.rows, inner: x.columns, columns: y.columns };
  const block = sizes.rows * sizes.columns;
  const sums = new Float64Array(elementCount(batch) * block);
  from.forEach((place, i) => {
    const left = { values: a!.values, start: place * x.size, row: x.row, column: x.column };
    const right = { values: b!.values, start: other[i]! * y.size, row: y.row, column: y.column };
    sums.set(product(left, right, sizes), i * block);
  });
  const shape = [...batch, sizes.rows, sizes.columns];
  return ndArray(a!.dtype, shape, sums.map((sum) => alpha * sum));
};

const gemm: Operation = ([a, b, c], attributes) => {
  const beta = attributes.number("beta", 1);
  const x = matrices(a!, attributes.number("transA", 0) === 1);
  const y = matrices(b!, attributes.number("transB", 0) === 1);
  const sizes = { rows: x.rows, inner: x.columns, columns: y.columns };
  const sums = product({ values: a!.values, start: 0, ...x }, {
    values: b!.values,
    start: 0,
    ...y,
  }, sizes);
  const shape = [sizes.rows, sizes.columns];
  const alpha = attributes.number("alpha", 1);
  const added = c && positions(shape, broadcastStrides(c.shape, shape));
  const plus = (i: number) => added ? beta * c!.values[added[i]!]! : 0;
  return ndArray(a!.dtype, shape, sums.map((sum, i) => alpha * sum + plus(i)));
};

/** Matrix products by name. */
export const PRODUCTS: Readonly<Record<string, Operation>> = {
  MatMul: matMul,
  "com.microsoft.FusedMatMul": matMul,
  Gemm: gemm,
};
