/** What a worker in a process of its own may do: what its device needs, and nothing else. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { createSystem, locateCheckpoint, type Transport } from "../../../actors/mod.ts";
import type { Least } from "../../../actors/runtime/transports/confinement.ts";
import { PROCESS_TRANSPORT } from "../../../actors/runtime/transports/process/process.ts";
import { type DeviceName, devicePermissions, resolveDevices } from "../../../kernels/mod.ts";
import { outcome, SMALL } from "../runs.ts";
import { inFolder, type Outcome, runScript, runTrain, TINY } from "../../console/command.ts";
import { PROBE } from "../runtime/probe.ts";

const DEVICES = ["native", "wasm", "reference"] as const satisfies readonly DeviceName[];

/** Processes, and what each was given. */
function watched(given: Least[]): Transport {
  return {
    ...PROCESS_TRANSPORT,
    name: "watched",
    open(options) {
      const open = PROCESS_TRANSPORT.open(options);
      return {
        ...open,
        start(request) {
          given.push(request.least!);
          return open.start(request);
        },
      };
    },
  };
}

for (const device of DEVICES) {
  Deno.test(`workers on ${device} get what the device needs, and have the bits of threads`, async () => {
    const given: Least[] = [], options = { device, workers: 2, schedule: "1f1b" } as const;
    const path = await Deno.makeTempFile();
    const [threads, processes] = await Promise.all([
      outcome(SMALL, { ...options, isolation: "worker" }),
      outcome(SMALL, {
        ...options,
        isolation: "watched",
        transport: watched(given),
        journal: { path },
      }),
    ]);
    assert.deepEqual(processes.bits, threads.bits);
    const [choice] = await resolveDevices(device);
    const { read = [], ...others } = devicePermissions(choice!);
    assert.ok(read !== true);
    const permissions = { ...others, read: [...read, path], write: [path] };
    assert.deepEqual(given.map(({ actor }) => actor), ["worker-0", "worker-1"]);
    for (const least of given) assert.deepEqual(least.permissions, permissions);
    await Deno.remove(path);
  });

  Deno.test(`with what ${device} needs a process reads no file, reaches nobody and runs nothing`, async () => {
    const [choice] = await resolveDevices(device);
    await using system = createSystem();
    const permissions = devicePermissions(choice!);
    const probe = system.spawn(PROBE, undefined, { id: "probe", isolate: "process", permissions });
    for (const what of ["read", "write", "connect", "listen", "run", "env", "sys"]) {
      assert.equal(await system.ask(probe, { type: "Try", what }), "NotCapable", what);
    }
    const ffi = await system.ask(probe, { type: "Try", what: "ffi" });
    assert.equal(ffi, device === "native" ? "did it" : "NotCapable");
  });
}

Deno.test("workers that go on from a checkpoint may read its files too, and no others", async () => {
  // Deno's flags cannot grant a path with a comma: there the program reads.
  await Promise.all(["plain", "with,comma"].map((name) =>
    inFolder(async (folder) => {
      const given: Least[] = [], directory = join(folder, name), device = "native";
      const options = { device, workers: 2, schedule: "1f1b" } as const;
      const checkpoint = { directory, every: 1, keep: 2, config: {} };
      const { bits } = await outcome(SMALL, { ...options, isolation: "worker", checkpoint });
      const resume = (await locateCheckpoint(join(directory, "step-00000001")))!;
      const run = { ...options, isolation: "watched", transport: watched(given), resume };
      assert.equal((await outcome(SMALL, run)).bits.hash, bits.hash);
      const [choice] = await resolveDevices(device);
      const { read = [] } = devicePermissions(choice!);
      assert.ok(read !== true);
      const files = ["model", "optimizer"].map((kind) => `${kind}.safetensors`);
      const paths = name === "plain" ? files.map((file) => join(resume.path, file)) : [];
      for (const least of given) {
        assert.deepEqual(least.permissions.read ?? [], [...read, ...paths]);
      }
    })
  ));
});

Deno.test("a program without environment and libraries trains in processes", async () => {
  const run = [...TINY, "--workers", "1", "--steps", "1", "--isolation", "process", "--json"];
  const { code, stderr } = await runTrain(run, ["--deny-env", "--deny-ffi", "--deny-sys"]);
  assert.equal(code, 0, stderr);
});

const ALL = ["read", "write", "connect", "listen", "run", "env", "sys"];

const UNSTABLE = "--unstable-worker-options";

for (const device of DEVICES) {
  Deno.test(`where Deno is told to, a thread with what ${device} needs reads no file, reaches nobody and runs nothing`, async () => {
    const script = new URL("./limited_worker.ts", import.meta.url).pathname;
    const { code, stdout, stderr } = await runScript(script, [device, ...ALL, "ffi"], [UNSTABLE]);
    assert.equal(code, 0, stderr);
    const { ffi, ...others } = JSON.parse(stdout);
    assert.deepEqual(others, Object.fromEntries(ALL.map((what) => [what, "NotCapable"])));
    assert.equal(ffi, device === "native" ? "did it" : "NotCapable");
  });
}

Deno.test("threads that may do less train with the bits of those that may do all, journal included", async () => {
  const path = await Deno.makeTempFile();
  const run = [...TINY, "--workers", "1", "--steps", "1", "--json", "--device", "wasm"];
  const [all, least] = await Promise.all([
    runTrain(run),
    runTrain([...run, "--journal", path], [UNSTABLE]),
  ]);
  const hashOf = ({ code, stdout, stderr }: Outcome) => {
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout.trimEnd().split("\n").at(-1)!).weightsHash;
  };
  assert.equal(hashOf(least), hashOf(all));
  await Deno.remove(path);
});
