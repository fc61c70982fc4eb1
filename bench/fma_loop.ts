/**
 * Measures the FMAs per second of an adapter; a program without imports.
 *
 *     deno run --no-config fma_loop.ts
 *
 * It prints JSON. Each thread has several chains of dependent FMAs. The best number of chains and of
 * lanes depends on the adapter, so several are tried.
 *
 * @module
 */

/** FMAs of each chain. */
const LINKS = 1024;
const GROUP_THREADS = 64;
/** A number of groups that every adapter supports. */
const GROUPS_MAX = 65_535;
/** Shorter runs are not counted, as they would measure the start of a run. */
const LEAST_MS = 100;
const RUNS = 3;

/** Chains of a thread, and lanes of a chain. */
const SHAPES = [[8, 1], [2, 4], [4, 4], [8, 4]] as const;

function shader(dtype: string, chains: number, lanes: number): string {
  const type = lanes === 1 ? dtype : `vec${lanes}<${dtype}>`;
  const each = (text: (chain: string) => string) =>
    Array.from({ length: chains }, (_, i) => text(`x${i}`)).join("\n");
  const sum = Array.from({ length: chains }, (_, i) => `x${i}`).join(" + ");
  return `${dtype === "f16" ? "enable f16;" : ""}
    @group(0) @binding(0) var<storage, read_write> result: array<f32>;
    @compute @workgroup_size(${GROUP_THREADS})
    fn main(@builtin(global_invocation_id) id: vec3u) {
      let factor = ${type}(${dtype}(id.x & 1u) * 0.5);
      let addend = ${type}(${dtype}(id.x & 3u) * 0.25);
      ${each((x) => `var ${x} = ${type}(${dtype}(id.x & 7u));`)}
      for (var i = 0u; i < ${LINKS}u; i++) {
        ${each((x) => `${x} = fma(${x}, factor, addend);`)}
      }
      let sum = ${sum};
      result[id.x] = f32(${lanes === 1 ? "sum" : "sum.x + sum.y + sum.z + sum.w"});
    }`;
}

/** Returns a function that runs a shader on some groups and returns the milliseconds. */
function runnerOf(device: GPUDevice, code: string): (groups: number) => Promise<number> {
  const module = device.createShaderModule({ code });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
  const size = GROUPS_MAX * GROUP_THREADS * 4;
  const buffer = device.createBuffer({ size, usage: GPUBufferUsage.STORAGE });
  const layout = pipeline.getBindGroupLayout(0);
  const entries = [{ binding: 0, resource: { buffer } }];
  const group = device.createBindGroup({ layout, entries });
  return async (groups) => {
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(groups);
    pass.end();
    const start = performance.now();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    return performance.now() - start;
  };
}

/** Returns the GFLOP/s of one shape: the fastest of some long runs. */
async function rateOf(device: GPUDevice, dtype: string, chains: number, lanes: number) {
  const run = runnerOf(device, shader(dtype, chains, lanes));
  let groups = 4;
  await run(groups);
  while (await run(groups) < LEAST_MS && groups < GROUPS_MAX) {
    groups = Math.min(4 * groups, GROUPS_MAX);
  }
  const times: number[] = [];
  for (let i = 0; i < RUNS; i++) times.push(await run(groups));
  return 2 * groups * GROUP_THREADS * LINKS * chains * lanes / 1e6 / Math.min(...times);
}

const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
if (!adapter) throw new Error("Deno's WebGPU has no adapter");
const hasF16 = adapter.features.has("shader-f16");
const device = await adapter.requestDevice({ requiredFeatures: hasF16 ? ["shader-f16"] : [] });
const rates: Record<string, number> = {};
for (const dtype of hasF16 ? ["f32", "f16"] : ["f32"]) {
  rates[dtype] = 0;
  for (const [chains, lanes] of SHAPES) {
    rates[dtype] = Math.max(rates[dtype], await rateOf(device, dtype, chains, lanes));
  }
}
// deno-lint-ignore no-console -- the output of this program
console.log(JSON.stringify({ adapter: adapter.info.description, rates }));
