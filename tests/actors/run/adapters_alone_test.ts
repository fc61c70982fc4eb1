/** Runs on adapters: the adapter of each worker, its record in a checkpoint, and memory limits. */

import assert from "node:assert/strict";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import { train } from "../../../actors/run/train.ts";
import type { RunOptions } from "../../../actors/options/train_options.ts";
import { workerInits } from "../../../actors/run/engine.ts";
import { prepareRun } from "../../../actors/run/prepare.ts";
import { gpt2 } from "../../../kernels/mod.ts";
import { gpuTest, SWIFTSHADER, writeDrivers } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";
import { RINGS, trainRings } from "./own_layers.ts";

/** Registers a test where there are two adapters. */
const twoAdapters = (name: string, test: (folder: string) => Promise<void>) =>
  gpuTest(name, () =>
    inFolder(async (folder) => {
      writeDrivers(folder);
      Deno.env.set("VK_DRIVER_FILES", folder);
      await test(folder).finally(() =>
        Deno.env.set("VK_DRIVER_FILES", SWIFTSHADER["VK_DRIVER_FILES"]!)
      );
    }));

const WEBGPU = { workers: 2, device: "webgpu", steps: 1 } as const;

const prepared = (options: Partial<RunOptions>) =>
  prepareRun({ ...WEBGPU, model: RINGS, microBatches: 2, data: [], ...options });

twoAdapters("workers in processes compute on the adapters of a run in turn", async () => {
  const adaptersOf = async (options: Partial<RunOptions>) =>
    workerInits(await prepared(options), "process", undefined)
      .map(({ device }) => device.adapter?.index);
  assert.deepEqual(await adaptersOf({ adapters: [1, 0], replicas: 2 }), [1, 0, 1, 0]);
  assert.deepEqual(await adaptersOf({ device: "webgpu:1" }), [1, 1]);
  // Of software the first, whatever there is.
  assert.deepEqual(await adaptersOf({}), [0, 0]);
  assert.deepEqual(await adaptersOf({ device: "reference" }), [undefined, undefined]);
  const { devices } = await prepared({ adapters: [1], runtime: "local" });
  assert.deepEqual(devices.map(({ adapter }) => adapter!.index), [1]);
  // Adapters that one process cannot use are refused.
  const refusal =
    /^RangeError: Cannot train with runtime serial on several adapters: a process can use one, so adapters must name one, or the runtime must be workers, received 0,1$/;
  await assert.rejects(prepared({ adapters: [0, 1], runtime: "serial" }), refusal);
  // All members of a simulated system that are used before a run starts.
  const system = { transports: [], spawn() {}, ask() {}, stop() {} } as never;
  const simulated = /: Cannot train in a simulated system on several adapters: .*, received 0,1$/;
  await assert.rejects(prepared({ adapters: [0, 1], system }), simulated);
});

twoAdapters("a run that leaves its adapters says that bits change", async (folder) => {
  const directory = `${folder}/run`, checkpoint = { directory, config: {} };
  const both = { ...WEBGPU, runtime: "workers", adapters: [0, 1], checkpoint } as const;
  const { end } = await trainRings(both);
  assert.equal(end.device, "webgpu");
  assert.match(end.adapter!, /^SwiftShader[^,]*$/); // the name of both
  const resume = (await readCheckpoint(directory))!;
  assert.deepEqual(resume.config["computedOn"], { device: "webgpu", adapter: end.adapter });
  const lines: string[] = [], announce = (line: string) => void lines.push(line);
  await prepared({ resume, device: "webgpu:1", announce });
  assert.deepEqual(lines, [`device webgpu computes on ${end.adapter}, which is software, no GPU`]);
  const other = await trainRings({ steps: 2, resume, announce });
  assert.equal(other.end.adapter, undefined);
  const before = `The checkpoint was computed on webgpu (${end.adapter})`;
  const change = `${before}: the bits of a run that continues on reference differ.`;
  assert.equal(lines.at(-1), change);
});

gpuTest("a model too large for SwiftShader is refused before a worker starts", async () => {
  const model = gpt2({ layers: 2, hidden: 16, heads: 2, seq: 256, vocab: 100_000 }, 16);
  const reason =
    /^RangeError: Cannot train on SwiftShader .*, 1023\.99 MiB, received 1562\.50 MiB for the value \S+ \[4096,100000\] of layer head; --micro-batch-size 8 would need 781\.25 MiB$/;
  await assert.rejects(train({ ...WEBGPU, model, data: [] }).next(), reason);
});
