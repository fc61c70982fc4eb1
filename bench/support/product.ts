/**
 * A product of two square matrices: what stands for a device's speed.
 *
 * @module
 */

import {
  type Device,
  encodeModel,
  Graph,
  type Run,
  substream,
  type Tensor,
} from "../../kernels/mod.ts";

/** Floating-point operations of the product of two matrices with `size` rows, in units of 1e9. */
export const productGflop = (size: number): number => 2 * size ** 3 / 1e9;

/** A product that can run, and the memory that it takes. */
export interface Product {
  readonly run: Run;
  /** Frees its matrices and its kernel. */
  readonly close: () => void;
}

/** MatMul of two square matrices. */
export async function openProduct(
  device: Device,
  size: number,
  dtype: "f32" | "f16" = "f32",
): Promise<Product> {
  const g = new Graph(), shape = [size, size];
  const a = g.input("a", shape, dtype), b = g.input("b", shape, dtype);
  const inputs = [{ name: "a", value: a }, { name: "b", value: b }];
  const kernel = await device.compile(
    encodeModel(g, inputs, [{ name: "c", value: g.matmul(a, b) }]),
  );
  const generator = substream(1, "bench matrices");
  const [left, right, product] = [0, 1, 2].map(() => device.alloc(dtype, shape)) as [
    Tensor,
    Tensor,
    Tensor,
  ];
  const values = dtype === "f32" ? new Float32Array(size ** 2) : new Float16Array(size ** 2);
  for (const tensor of [left, right]) {
    device.write(tensor, values.map(() => generator.next() / 2 ** 31));
  }
  return {
    run: kernel.bind({ a: left, b: right }, { c: product }),
    close() {
      kernel.close();
      for (const tensor of [left, right, product]) device.free(tensor);
    },
  };
}
