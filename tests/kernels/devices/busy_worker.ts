/** A worker that computes on the native device until it is terminated. */

/// <reference lib="deno.worker" />
import { openNative } from "../../../kernels/devices/native/native.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import { modelOf } from "./models.ts";

const SIZE = 1024;

self.onmessage = async ({ data: library }: MessageEvent<string>) => {
  const device = await openNative({ library });
  const g = new Graph();
  const a = g.input("a", [SIZE, SIZE]);
  const kernel = await device.compile(modelOf(g, { y: g.gemm(g.gemm(a, a), a) }));
  const tensors = [device.alloc("f32", [SIZE, SIZE]), device.alloc("f32", [SIZE, SIZE])] as const;
  const run = kernel.bind({ a: tensors[0] }, { y: tensors[1] });
  self.postMessage("computing");
  for (;;) await run();
};
