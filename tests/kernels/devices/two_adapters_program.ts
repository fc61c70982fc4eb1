/** Opens the second adapter of its machine, and tries the first one too. Run by adapters_alone_test.ts. */

import { openDevice, resolveDevices } from "../../../kernels/devices/open.ts";

const choices = await resolveDevices("webgpu", { adapters: [1, 0] });
const [second, first] = choices as [typeof choices[0], typeof choices[0]];
const device = await openDevice(second.name, second);
const tensor = device.alloc("f32", [2]);
device.write(tensor, Float32Array.of(3, 4));
const read = [...await device.read<Float32Array>(tensor)];
const tryOther = () => openDevice(first.name, first).catch((error) => error.message);
const refusals = [await tryOther()];
device.close();
refusals.push(await tryOther());
const adapters = choices.map(({ adapter }) => adapter!.environment["VK_DRIVER_FILES"]);
const visible = Deno.env.get("VK_DRIVER_FILES");
// The libraries of drivers that this process has loaded.
const maps = Deno.readTextFileSync("/proc/self/maps").split("\n");
const loaded = new Set(maps.flatMap((line) => line.match(/\S+\/[01]\.so$/) ?? []));
const answer = { adapters, visible, loaded: [...loaded], read, refusals };
await Deno.stdout.write(
  new TextEncoder().encode(JSON.stringify(answer)),
);
