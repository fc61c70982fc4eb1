/** Prints, as JSON, how an actor in a Deno worker fares that may do what a device needs. */

import { createSystem } from "../../../actors/mod.ts";
import { devicePermissions, type DeviceSpec, resolveDevices } from "../../../kernels/mod.ts";
import { print } from "../../../console/mod.ts";
import { PROBE } from "../runtime/probe.ts";

const [device, ...tries] = Deno.args;
const [choice] = await resolveDevices(device as DeviceSpec);
await using system = createSystem();
const permissions = devicePermissions(choice!);
const probe = system.spawn(PROBE, undefined, { id: "probe", isolate: "worker", permissions });
const found: Record<string, string> = {};
for (const what of tries) found[what] = await system.ask(probe, { type: "Try", what });
print(JSON.stringify(found));
