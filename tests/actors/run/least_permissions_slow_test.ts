/** A worker in a process or thread may do what its device needs, and nothing else. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { createSystem, locateCheckpoint, type Transport } from "../../../actors/mod.ts";
import type { Least } from "../../../actors/runtime/transports/confinement.ts";
import { PROCESS_TRANSPORT } from "../../../actors/runtime/transports/process/process.ts";
import { type DeviceName, devicePermissions, resolveDevices } from "../../../kernels/mod.ts";
import { runScript, runTrain, TINY, trainHere } from "../../console/command.ts";
import { folderTest } from "../../in_folder.ts";
import { PROBE } from "../runtime/probe.ts";
import { trainRings } from "./own_layers.ts";

const DEVICES = ["native", "wasm", "reference"] as const satisfies readonly DeviceName[];

/** Processes, and what each was given. */
function watched(given: Least[]): { isolation: string; transport: Transport; runtime: "workers" } {
  const open: Transport["open"] = (options) => {
    const opened = PROCESS_TRANSPORT.open(options);
    const start: typeof opened.start = (
      request,
    ) => (given.push(request.least!), opened.start(request));
    return { ...opened, start };
  };
  const transport = { ...PROCESS_TRANSPORT, name: "watched", open };
  return { isolation: transport.name, transport, runtime: "workers" };
}

/** What a device needs, with the paths that are read. */
async function neededBy(device: DeviceName) {
  const [choice] = await resolveDevices(device), permissions = devicePermissions(choice!);
  const { read = [] } = permissions;
  assert.ok(read !== true);
  return { ...permissions, read };
}

folderTest("workers get what their device needs, with the same bits", async (folder) => {
  for (const device of DEVICES) {
    const given: Least[] = [], path = join(folder, device), workers = device === "native" ? 2 : 1;
    const options = { device, workers, steps: 1 } as const, here = await trainRings(options);
    const { bits } = await trainRings({ ...options, ...watched(given), journal: { path } });
    assert.deepEqual(bits, here.bits);
    const needed = await neededBy(device);
    const permissions = { ...needed, read: [...needed.read, path], write: [path] };
    const wanted = ["worker-0", "worker-1"].map((actor) => ({ actor, permissions }));
    const found = given.map(({ actor, permissions }) => ({ actor, permissions }));
    assert.deepEqual(found, wanted.slice(0, workers));
  }
});

// Deno's flags cannot grant a path with a comma: there the program reads.
folderTest("workers that go on from a checkpoint may read no files but its", async (folder) => {
  for (const name of ["plain", "with,comma"]) {
    const given: Least[] = [], directory = join(folder, name);
    const checkpoint = { directory, every: 1, keep: 2, config: {} };
    const options = { device: "native", steps: 2, workers: 1 } as const;
    const { bits } = await trainRings({ ...options, checkpoint });
    const resume = (await locateCheckpoint(join(directory, "step-00000001")))!;
    const again = await trainRings({ ...options, ...watched(given), resume });
    assert.equal(again.bits.hash, bits.hash);
    const files = ["model", "optimizer"].map((kind) => join(resume.path, `${kind}.safetensors`));
    const { read } = await neededBy("native");
    const allowed = [...read, ...name === "plain" ? files : []];
    assert.deepEqual(given.map(({ permissions: { read = [] } }) => read), [allowed]);
  }
});

const TRIES = ["read", "write", "connect", "listen", "run", "env", "sys", "ffi"];

/** What is refused on each device: all but the native library. */
const WANTED = Object.fromEntries(DEVICES.map((device) => {
  const refused = Object.fromEntries(TRIES.map((what) => [what, "NotCapable"]));
  return [device, { ...refused, ...device === "native" && { ffi: "did it" } }];
}));

Deno.test("with what a device needs a process reads no file, opens no connection and runs nothing", async () => {
  await using system = createSystem();
  for (const device of DEVICES) {
    const permissions = await neededBy(device), id = `probe ${device}`;
    const probe = system.spawn(PROBE, undefined, { id, isolate: "process", permissions });
    const found: Record<string, string> = {};
    for (const what of TRIES) found[what] = await system.ask(probe, { type: "Try", what });
    assert.deepEqual(found, WANTED[device], device);
  }
});

const UNSTABLE = "--unstable-worker-options";

Deno.test("where Deno has permissions of workers, a thread with what a device needs can do no more either", async () => {
  const script = new URL("./limited_worker.ts", import.meta.url).pathname;
  const { code, stdout, stderr } = await runScript(script, [`${DEVICES}`, `${TRIES}`], [UNSTABLE]);
  assert.equal(code, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), WANTED);
});

const ONE_STEP = [...TINY, "--workers", "1", "--steps", "1", "--json"];

Deno.test("a program without environment and libraries trains in processes", async () => {
  const run = [...ONE_STEP, "--isolation", "process"];
  const { code, stderr } = await runTrain(run, ["--deny-env", "--deny-ffi", "--deny-sys"]);
  assert.equal(code, 0, stderr);
});

folderTest(
  "threads that may do less train with the bits of those that may do all",
  async (folder) => {
    const run = [...ONE_STEP, "--device", "wasm"], journal = ["--journal", join(folder, "journal")];
    const { last } = await trainHere([...run, "--runtime", "local"]);
    const { code, stdout, stderr } = await runTrain([...run, ...journal], [UNSTABLE]);
    assert.equal(code, 0, stderr);
    const end = JSON.parse(stdout.trimEnd().split("\n").at(-1)!);
    assert.equal(end.weightsHash, last["weightsHash"]);
  },
);
