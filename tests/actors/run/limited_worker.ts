/** Prints, as JSON, what actors in Deno workers may do that have the permissions of their device. */

import { createSystem } from "../../../actors/mod.ts";
import { devicePermissions, type DeviceSpec, resolveDevices } from "../../../kernels/mod.ts";
import { print } from "../../../console/mod.ts";
import { PROBE } from "../runtime/probe.ts";

const [devices, tries] = Deno.args.map((list) => list.split(",")) as [DeviceSpec[], string[]];
await using system = createSystem();
const found: Record<string, Record<string, string>> = {};
for (const device of devices) {
  const [choice] = await resolveDevices(device), permissions = devicePermissions(choice!);
  const probe = system.spawn(PROBE, undefined, { id: device, isolate: "worker", permissions });
  const did: Record<string, string> = found[device] = {};
  for (const what of tries) did[what] = await system.ask(probe, { type: "Try", what });
}
print(JSON.stringify(found));
