import assert from "node:assert/strict";
import {
  type Ask,
  chooseAdapters,
  findAdapters,
  type FoundAdapters,
} from "../../../kernels/devices/webgpu/adapters.ts";
import { driverManifests, type VulkanDevice } from "../../../kernels/devices/webgpu/vulkan.ts";
import type { ProbeAnswer, ProviderAnswer } from "../../../kernels/devices/webgpu/probe.ts";
import type { Precision } from "../../../kernels/precision.ts";
import { claimGpu } from "../../../kernels/devices/webgpu/gpu_api.ts";
import { assertRefused } from "../graph/refused.ts";

const SERVES: ProviderAnswer = { hasF16: true };

const gpu = (name: string, more: Partial<VulkanDevice> = {}): VulkanDevice => ({
  ...{ name, kind: "discrete", vendorId: 0x10de, deviceId: 0x2684, pciAddress: undefined },
  ...{ uuid: name, memoryBytes: 24 * 2 ** 30, maxBufferBytes: 2 ** 32 - 1 },
  ...more,
});

const software = gpu("lava", { kind: "software", uuid: "cpu", memoryBytes: 2 ** 31 });

const answer = (devices: readonly VulkanDevice[], provider?: ProviderAnswer): ProbeAnswer => (
  { devices, system: undefined, provider: provider ?? SERVES }
);

/** Answers of the drivers, by manifest. */
type Drivers = Record<string, ProbeAnswer | { failure: string }>;

const look = (answers: Drivers) =>
  findAdapters(Object.keys(answers), (one) => Promise.resolve(answers[one["VK_DRIVER_FILES"]!]!));

const CRASH = "a driver that ended its process with SIGSEGV";
const integrated = gpu("small", { kind: "integrated" });

/** Drivers, the names of the adapters in order, and refused adapters with reasons. */
type Seen = readonly [Drivers, string[], [string, RegExp][]];

const SEEN: Record<string, Seen> = {
  "GPUs come before software, and the discrete ones first": [
    { "/l": answer([software]), "/intel": answer([integrated]), "/nvidia": answer([gpu("big")]) },
    ...[["big", "small", "lava"], []] as [string[], []],
  ],
  "an adapter that the provider does not take is named with the reason, and so is a driver that crashes":
    [
      {
        ...{ "/lavapipe": answer([software], { problem: "no indexing" }) },
        ...{ "/broken": { failure: CRASH }, "/radeon": answer([]) },
      },
      [],
      [["lava", /^no indexing$/], ["/broken", new RegExp(`^${CRASH}$`)]],
    ],
  "a GPU that two drivers serve is one adapter, software of two drivers is two": [
    {
      ...{ "/etc": answer([gpu("big")]), "/usr": answer([gpu("big")]) },
      ...{ "/one": answer([software]), "/two": answer([software]) },
    },
    ["big", "lava", "lava"],
    [["big", /through another driver$/]],
  ],
};

for (const [name, [drivers, names, refusals]] of Object.entries(SEEN)) {
  Deno.test(name, async () => {
    const { adapters, refused } = await look(drivers);
    assert.deepEqual(adapters.map(({ index, name }) => [index, name]), [...names.entries()]);
    assert.deepEqual(refused.map(({ name }) => name), refusals.map(([name]) => name));
    refusals.forEach(([, reason], i) => assert.match(refused[i]!.reason, reason));
  });
}

Deno.test("an adapter is seen by a process that is given its driver alone", async () => {
  const { adapters: [first] } = await look({ "/nvidia": answer([gpu("big")]) });
  const variables = { VK_DRIVER_FILES: "/nvidia", VK_ICD_FILENAMES: "/nvidia" };
  assert.deepEqual(first!.environment, { ...variables, NODEVICE_SELECT: "1" });
});

type Chooses = (environment: Readonly<Record<string, string>>, one: VulkanDevice) => boolean;

/** A driver with some GPUs: a process sees the one first that its environment chooses. */
const severalGpus = (devices: readonly VulkanDevice[], isChosen: Chooses): Ask => (environment) => {
  const [first] = [...devices.filter((one) => isChosen(environment, one)), ...devices];
  return Promise.resolve(answer([first!, ...devices.filter((one) => one !== first)]));
};

const hex = (id: number) => `0x${id.toString(16).padStart(4, "0")}`;
const byIds: Chooses = (environment, { vendorId, deviceId }) =>
  environment["VK_LOADER_DEVICE_SELECT"] === `${hex(vendorId)}:${hex(deviceId)}`;

Deno.test("one of several GPUs of a driver is chosen by its ids, where a process then sees it first", async () => {
  const gpus = [gpu("big"), gpu("other", { deviceId: 0x1234 })];
  const { adapters, refused } = await findAdapters(["/nvidia"], severalGpus(gpus, byIds));
  assert.deepEqual(adapters.map(({ name }) => name), ["big", "other"]);
  assert.equal(adapters[1]!.environment["VK_LOADER_DEVICE_ID_FILTER"], `${0x1234}`);
  assert.deepEqual(refused, []);
  const fixed = await findAdapters(["/nvidia"], severalGpus(gpus, () => false));
  assert.deepEqual(fixed.adapters.map(({ name }) => name), ["big"]);
});

Deno.test("GPUs of one model are chosen by where they sit, where something heeds it", async () => {
  const [one, two] = ["0000_01_00_0", "0000_02_00_0"];
  const twins = [one!, two!].map((address) => gpu(address, { pciAddress: address }));
  const bySeat: Chooses = (environment, { pciAddress }) =>
    environment["DRI_PRIME"] === `pci-${pciAddress}`;
  const heeding = severalGpus(twins, bySeat);
  assert.equal((await findAdapters(["/nvidia"], heeding)).adapters.length, 2);
  const deaf = await findAdapters(["/nvidia"], severalGpus(twins, () => false));
  assert.deepEqual(deaf.adapters.map(({ name }) => name), [one]);
  const reason = /^one of 2 GPUs of \/nvidia, .*; install Mesa's device selection/;
  assert.match(deaf.refused[0]!.reason, reason);
});

Deno.test("a GPU that comes first is not chosen where the provider would prefer another", async () => {
  const small = gpu("small", { kind: "integrated", deviceId: 1 });
  const ask = severalGpus([gpu("big"), small], byIds);
  assert.deepEqual((await findAdapters(["/mesa"], ask)).adapters, []);
  // Where Mesa's layer leaves no other, it is.
  const layered: Ask = (environment) =>
    environment["MESA_VK_DEVICE_SELECT"] === "10de:0001"
      ? Promise.resolve(answer([small]))
      : ask(environment);
  const { adapters } = await findAdapters(["/mesa"], layered);
  assert.deepEqual(adapters.map(({ name }) => name), ["small"]);
});

Deno.test("manifests are found where the Vulkan loader finds them, in its order", () => {
  const folders: Record<string, string[]> = {
    "/home/me/.config/vulkan/icd.d": ["own.json"],
    "/etc/vulkan/icd.d": ["nvidia_icd.json", "notes.txt"],
    "/usr/share/vulkan/icd.d": ["radeon.json", "intel.json"],
    "/drivers": ["b.json", "a.json"],
  };
  const files = (path: string) => path.endsWith(".json") ? undefined : folders[path] ?? [];
  const look = (variables: Record<string, string>) =>
    driverManifests({ variable: (name) => variables[name], files });
  const etc = "/etc/vulkan/icd.d", share = "/usr/share/vulkan/icd.d";
  assert.deepEqual(look({ HOME: "/home/me" }), [
    ...["/home/me/.config/vulkan/icd.d/own.json", `${etc}/nvidia_icd.json`],
    ...[`${share}/intel.json`, `${share}/radeon.json`],
  ]);
  const named = { VK_DRIVER_FILES: "/x/one.json:/drivers", VK_ICD_FILENAMES: "/y.json" };
  assert.deepEqual(look(named), ["/x/one.json", "/drivers/a.json", "/drivers/b.json"]);
  assert.deepEqual(look({ VK_ICD_FILENAMES: "/y.json" }), ["/y.json"]);
  assert.equal(look({ VK_ADD_DRIVER_FILES: "/y.json" })[0], "/y.json");
  assert.deepEqual(look({ VK_DRIVER_FILES: "" }), []);
});

Deno.test("a run uses all GPUs, or the first other adapter, or the named ones; in FP16 only adapters that support it", async () => {
  const [a, b] = [gpu("a"), gpu("b")];
  const mixed = await look({ "/l": answer([software]), "/a": answer([a]), "/b": answer([b]) });
  const none = await look({ "/1": answer([software]), "/2": answer([software]) });
  const half = await look({ "/a": answer([a], { hasF16: false }), "/b": answer([b]) });
  const without = await look({ "/a": answer([a], { hasF16: false }) });
  const cases: [FoundAdapters, string[], number[]?, Precision?][] = [
    [mixed, ["a", "b"]],
    [mixed, ["lava", "a"], [2, 0]],
    [none, ["lava"]],
    [half, ["b"], [], "fp16"],
    [half, ["b"], [1], "fp16"],
    [without, ["a"]],
  ];
  for (const [found, names, ...how] of cases) {
    assert.deepEqual(chooseAdapters(found, ...how).map(({ name }) => name), names);
  }
  const useless = await look({ "/lavapipe": answer([software], { problem: "no indexing" }) });
  await assertRefused("chosen_adapters", [
    () => chooseAdapters(mixed, [3]),
    () => chooseAdapters(half, [1, 0], "fp16"),
    () => chooseAdapters(without, [], "fp16"),
    // With the packages to install, and the refused adapters.
    () => chooseAdapters({ adapters: [], refused: [] }),
    () => chooseAdapters(useless),
  ]);
});

Deno.test("where there is no Vulkan, the system's own adapter counts once the provider takes it", async () => {
  const ofSystem = (provider: ProviderAnswer | undefined, isSoftware = false) =>
    findAdapters(undefined, () => {
      const kind = isSoftware ? "software" : "other";
      const system = { name: "Apple M4", kind, memoryBytes: 0, maxBufferBytes: 2 ** 30 } as const;
      return Promise.resolve({ devices: undefined, system, provider });
    });
  const { adapters: [adapter] } = await ofSystem(SERVES);
  const of = { kind: "other", memoryBytes: 0, maxBufferBytes: 2 ** 30, hasF16: true } as const;
  assert.deepEqual(adapter, { index: 0, name: "Apple M4", ...of, environment: {} });
  assert.equal((await ofSystem(SERVES, true)).adapters[0]!.kind, "software");
  const refused = [{ name: "Apple M4", reason: "no device" }];
  assert.deepEqual(await ofSystem({ problem: "no device" }), { adapters: [], refused });
  assert.deepEqual(await ofSystem(undefined, true), { adapters: [], refused: [] });
});

Deno.test("an isolate that is at work while it claims the GPU gets it, and no other then", async () => {
  const claim = claimGpu();
  for (let turns = 0; turns < 3; turns++) {
    const began = performance.now();
    while (performance.now() - began < 200);
    await new Promise((resolve) => setTimeout(resolve));
  }
  (await claim)();
  const release = await claimGpu();
  await assert.rejects(claimGpu(), /another that has it open; use isolation process/);
  release();
});
