/** Runs on several adapters: who computes on which, and what a checkpoint says of it. */

import assert from "node:assert/strict";
import { readCheckpoint, train, type TrainOptions } from "../../../actors/mod.ts";
import { workerInits } from "../../../actors/run/engines/worker_inits.ts";
import { prepareRun } from "../../../actors/run/options/prepare_run.ts";
import { gpuTest, SWIFTSHADER, writeDrivers } from "../../gpu.ts";
import { inFolder } from "../../in_folder.ts";
import { batches, RINGS } from "./own_layers.ts";

const OPTIONS = { model: RINGS, microBatches: 2, workers: 2, device: "webgpu", steps: 1 } as const;

/** Runs something where there are two adapters. */
async function withTwoAdapters(test: (folder: string) => Promise<void>): Promise<void> {
  await inFolder(async (folder) => {
    writeDrivers(folder);
    Deno.env.set("VK_DRIVER_FILES", folder);
    try {
      await test(folder);
    } finally {
      Deno.env.set("VK_DRIVER_FILES", SWIFTSHADER["VK_DRIVER_FILES"]!);
    }
  });
}

/** The adapters of the workers of a run that is about to begin. */
async function adaptersOf(options: Partial<TrainOptions>): Promise<(number | undefined)[]> {
  const prepared = await prepareRun({ ...OPTIONS, data: [], ...options });
  return workerInits(prepared, "process", undefined).map(({ device }) => device.adapter?.index);
}

gpuTest("workers compute on the adapters of a run in turn", () =>
  withTwoAdapters(async () => {
    assert.deepEqual(await adaptersOf({ adapters: [1, 0], replicas: 2 }), [1, 0, 1, 0]);
    assert.deepEqual(await adaptersOf({ device: "webgpu:1" }), [1, 1]);
    // Of software the first, whatever there is.
    assert.deepEqual(await adaptersOf({}), [0, 0]);
    assert.deepEqual(await adaptersOf({ device: "reference" }), [undefined, undefined]);
  }));

gpuTest(
  "what one process cannot do is refused before anything runs",
  () =>
    withTwoAdapters(async () => {
      await assert.rejects(
        prepareRun({ ...OPTIONS, data: [], adapters: [0, 1], runtime: "serial" }),
        {
          name: "RangeError",
          message:
            "Cannot train with runtime serial on several adapters: a process can use one, so adapters must name one or the runtime must be workers, received 0,1",
        },
      );
      // All that is asked of a simulated system before a run begins.
      const system = { transports: [], spawn() {}, ask() {}, stop() {} } as never;
      await assert.rejects(prepareRun({ ...OPTIONS, data: [], adapters: [0, 1], system }), {
        message: /^Cannot train in a simulated system on several adapters: .*, received 0,1$/,
      });
      const { devices } = await prepareRun({
        ...OPTIONS,
        data: [],
        adapters: [1],
        runtime: "local",
      });
      assert.deepEqual(devices.map(({ adapter }) => adapter!.index), [1]);
    }),
);

gpuTest(
  "a run on two adapters names them, and one that goes on elsewhere says that bits change",
  () =>
    withTwoAdapters(async (folder) => {
      const directory = `${folder}/run`, checkpoint = { directory, config: {} };
      const end = await endOf({ ...OPTIONS, adapters: [0, 1], checkpoint });
      assert.equal(end.device, "webgpu");
      assert.match(end.adapter!, /^SwiftShader[^,]*$/); // the name of both
      const resume = (await readCheckpoint(directory))!;
      assert.deepEqual(resume.config["computedOn"], { device: "webgpu", adapter: end.adapter });
      const told: string[] = [], announce = (line: string) => void told.push(line);
      await prepareRun({ ...OPTIONS, data: [], resume, device: "webgpu:1", announce });
      assert.deepEqual(told, [
        `device webgpu computes on ${end.adapter}, which is software, no GPU`,
      ]);
      const other = { ...OPTIONS, device: "reference", runtime: "local", steps: 2 } as const;
      const { adapter } = await endOf({ ...other, resume, announce });
      assert.equal(adapter, undefined);
      assert.equal(
        told.at(-1),
        `The bits of this run are not those of one that stays on webgpu (${end.adapter}), where its checkpoint was computed: it goes on on reference.`,
      );
    }),
);

async function endOf(options: Omit<TrainOptions, "data">) {
  for await (const event of train({ ...options, data: batches() })) {
    if (event.type === "end") return event;
  }
  return assert.fail("a run must end");
}
