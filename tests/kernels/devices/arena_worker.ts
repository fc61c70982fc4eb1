/** A worker that computes on the native device, tells what its arena holds, and leaves. */

/// <reference lib="deno.worker" />
import { alone } from "../../../kernels/devices/native/alone.ts";
import { openNative } from "../../../kernels/devices/native/native.ts";
import { openOrt } from "../../../kernels/devices/native/ort_api.ts";
import { Graph } from "../../../kernels/graph/graph.ts";
import { modelOf } from "./models.ts";

/** What the worker is asked: to compute with matrices of a size, to look, or to end. */
export type ArenaRequest =
  | { readonly kind: "compute"; readonly library: string; readonly size: number }
  | { readonly kind: "look"; readonly library: string }
  | { readonly kind: "end" };

let device: Awaited<ReturnType<typeof openNative>> | undefined;

self.onmessage = async ({ data }: MessageEvent<ArenaRequest>) => {
  self.postMessage(await answer(data));
};

async function answer(request: ArenaRequest): Promise<number> {
  switch (request.kind) {
    case "compute": {
      const { library, size } = request, g = new Graph(), a = g.input("a", [size, size]);
      device = await openNative({ library });
      const kernel = await device.compile(modelOf(g, { y: g.gemm(g.gemm(a, a), a) }));
      const y = device.alloc("f32", [size, size]);
      await kernel.bind({ a: device.alloc("f32", [size, size]) }, { y })();
      return 0;
    }
    case "look": {
      const ort = await alone(() => openOrt(request.library, { threads: 1, isBlocking: true }));
      return ort.arenaBytes();
    }
    case "end":
      device?.close();
      return 0;
  }
}
