/** What the devices of a run cannot hold is refused before it begins, with what would fit. */

import assert from "node:assert/strict";
import { train } from "../../../actors/mod.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { assertDevicesHold } from "../../../actors/run/memory/device_memory.ts";
import {
  type Adapter,
  type DeviceChoice,
  deviceLimits,
  gpt2,
  mebibytes,
  totalBytes,
} from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";
import { gpuTest } from "../../gpu.ts";
import { SMALL } from "../runs.ts";

const ADAPTER: Adapter = {
  index: 0,
  name: "Big GPU",
  kind: "discrete",
  memoryBytes: 2 ** 40,
  maxBufferBytes: 2 ** 32 - 16,
  hasF16: false,
  environment: {},
};

const on = (said: Partial<Adapter>): DeviceChoice => ({
  name: "webgpu",
  adapter: { ...ADAPTER, ...said },
});

const SCHEDULE = createSchedule("1f1b", { workers: 2, microBatches: 4 });

/** A run as it is checked: two replicas of two workers. */
function runOn(
  devices: readonly [DeviceChoice, ...DeviceChoice[]],
  { sizes = SMALL, replicas = 2, runtime = "workers" as const } = {},
) {
  const options = { model: gpt2(sizes, sizes.microBatch), replicas };
  const compiled = compileRun(options, SCHEDULE, devices[0].name);
  return { options, schedule: SCHEDULE, compiled, devices, runtime, replicas };
}

Deno.test("a tensor beyond the largest buffer is refused by its name, with the micro-batch that fits", () => {
  // The logits, and what else has their size: 4 · 16 rows of 512 numbers.
  const sizes = { ...SMALL, hidden: 16, vocab: 512, microBatch: 4 }, bytes = 4 * 16 * 512 * 4;
  assertDevicesHold(runOn([on({ maxBufferBytes: bytes })], { sizes }));
  assert.throws(() => assertDevicesHold(runOn([on({ maxBufferBytes: bytes - 16 })], { sizes })), {
    name: "RangeError",
    message:
      /^Cannot train on Big GPU: each tensor must fit into its largest buffer, 0\.12 MiB, received 0\.13 MiB for the value \S+ \[64,512\] of layer head; --micro-batch 2 would need 0\.06 MiB$/,
  });
  // No change of the run makes a parameter smaller.
  const wide = { ...sizes, seq: 2 };
  assert.throws(
    () => assertDevicesHold(runOn([on({ maxBufferBytes: 2 ** 14 })], { sizes: wide })),
    {
      message:
        "Cannot train on Big GPU: each tensor must fit into its largest buffer, 0.01 MiB, received 0.03 MiB for the parameter transformer.wte.weight [512,16]; take a smaller model",
    },
  );
});

Deno.test("one buffer that is too small on one of several adapters is enough", () => {
  const devices = [on({}), on({ name: "Small GPU", maxBufferBytes: 1024 })] as const;
  assert.throws(
    () => assertDevicesHold(runOn(devices)),
    /^RangeError: Cannot train on Small GPU: /,
  );
});

Deno.test("workers that share an adapter must fit into its memory together", () => {
  const held = runOn([on({})]).compiled.memory.map(({ device }) => totalBytes(device));
  const [first, last] = held as [number, number], most = 2 * (first + last);
  assertDevicesHold(runOn([on({ memoryBytes: most })]));
  assert.throws(() => assertDevicesHold(runOn([on({ memoryBytes: most - 1 })])), {
    name: "RangeError",
    message: new RegExp(
      `^Cannot train on Big GPU: what its workers hold must fit into its memory, \\S+ MiB, received ${
        mebibytes(most)
      } for workers 0, 1, 2, 3; --recompute cheap would need \\S+ MiB$`,
    ),
  });
  // Workers take adapters in turn: each has the same worker of both replicas.
  const split = (memoryBytes: number) =>
    [on({ memoryBytes: 2 * first }), on({ name: "Small GPU", memoryBytes })] as const;
  assertDevicesHold(runOn(split(2 * last)));
  assert.throws(
    () => assertDevicesHold(runOn(split(last / 4))),
    /Cannot train on Small GPU: .* for workers 1, 3; even --recompute cheap --offload would need \S+ MiB: take more adapters, a smaller micro-batch or a smaller model$/,
  );
});

Deno.test("memory of this machine is for what lies there, and that of a GPU for the rest", () => {
  const replicas = 2 ** 26;
  const many = (device: DeviceChoice) => {
    const run = runOn([device], { replicas: 1 }), { compiled } = run;
    const [one] = compiled.memory as [typeof compiled.memory[0]];
    const scaled = { ...one, device: { ...one.device, weights: one.device.weights * replicas } };
    const memory = [0, 1].map((worker) => ({ ...scaled, worker }));
    return { ...run, compiled: { ...compiled, memory } };
  };
  assertDevicesHold(many(on({ memoryBytes: 0 }))); // whoever does not tell its size has enough
  for (const device of [on({ kind: "software" }), { name: "native" } as const]) {
    assert.throws(
      () => assertDevicesHold(many(device)),
      /^RangeError: Cannot train: it must fit into the .* GiB of this machine, received .* GiB$/,
    );
  }
  assert.equal(deviceLimits(on({ kind: "software", memoryBytes: 1 })).memoryBytes, Infinity);
});

gpuTest("a model too large for SwiftShader is refused before a worker starts", async () => {
  const model = gpt2({ layers: 2, hidden: 16, heads: 2, seq: 256, vocab: 100_000 }, 16);
  const lines: string[] = [];
  const run = train({
    model,
    data: [],
    steps: 1,
    workers: 2,
    device: "webgpu",
    announce: (line) => lines.push(line),
  });
  await assert.rejects(async () => await run[Symbol.asyncIterator]().next(), {
    name: "RangeError",
    message:
      /^Cannot train on SwiftShader .*: each tensor must fit into its largest buffer, 1023\.99 MiB, received 1562\.50 MiB for the value \S+ \[4096,100000\] of layer head; --micro-batch 8 would need 781\.25 MiB$/,
  });
  assert.equal(lines.length, 1);
});
