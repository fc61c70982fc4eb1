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
  wide,
} from "./array.ts";

/** Sizes of a product [rows, inner] · [inner, columns]. */
interface Sizes {
  readonly rows: number;
  readonly inner: number;
  readonly columns: number;
}

/** a · b, all row-major. */
function product(a: Float64Array, b: Float64Array, { rows, inner, columns }: Sizes): Float64Array {
  const result = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let k = 0; k < inner; k++) {
      const left = a[i * inner + k]!;
      for (let j = 0; j < columns; j++) {
        result[i * columns + j]! += left * b[k * columns + j]!;
      }
    }
  }
  return result;
}

/** The last two axes of `array`, transposed or not, and those before them. */
function matrices({ shape, values }: NdArray, transposed: boolean) {
  const [height, width] = [shape.at(-2)!, shape.at(-1)!], size = height * width;
  const [rows, columns] = transposed ? [width, height] : [height, width];
  const strides = transposed ? [1, width] : [width, 1];
  return {
    batch: shape.slice(0, -2),
    rows,
    columns,
    /** One of the matrices, row-major, in f64. */
    matrix: (index: number) => wide(values, positions([rows, columns], strides, index * size)),
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
  from.forEach((place, i) =>
    sums.set(product(x.matrix(place), y.matrix(other[i]!), sizes), i * block)
  );
  const shape = [...batch, sizes.rows, sizes.columns];
  return ndArray(a!.dtype, shape, sums.map((sum) => alpha * sum));
};

const gemm: Operation = ([a, b, c], attributes) => {
  const beta = attributes.number("beta", 1);
  const x = matrices(a!, attributes.number("transA", 0) === 1);
  const y = matrices(b!, attributes.number("transB", 0) === 1);
  const sizes = { rows: x.rows, inner: x.columns, columns: y.columns };
  const sums = product(x.matrix(0), y.matrix(0), sizes);
  const shape = [sizes.rows, sizes.columns];
  const alpha = attributes.number("alpha", 1);
  const added = c && wide(c.values, positions(shape, broadcastStrides(c.shape, shape)));
  const plus = (i: number) => added ? beta * added[i]! : 0;
  return ndArray(a!.dtype, shape, sums.map((sum, i) => alpha * sum + plus(i)));
};

/** Matrix products by name. */
export const PRODUCTS: Readonly<Record<string, Operation>> = {
  MatMul: matMul,
  "com.microsoft.FusedMatMul": matMul,
  Gemm: gemm,
};
