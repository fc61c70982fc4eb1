/** A worker in a process may do what its device needs, and nothing else. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { createSystem, type Transport } from "../../../actors/mod.ts";
import type { Least } from "../../../actors/runtime/transports/confinement.ts";
import { PROCESS_TRANSPORT } from "../../../actors/runtime/transports/process/process.ts";
import { devicePermissions, resolveDevices } from "../../../kernels/mod.ts";
import { folderTest } from "../../in_folder.ts";
import { PROBE } from "../runtime/probe.ts";
import { trainRings } from "./own_layers.ts";

const TRIES = ["read", "write", "connect", "listen", "run", "env", "sys"];

folderTest(
  "a process gets what its device needs, with the same bits, and can do no more",
  async (folder) => {
    const given: Least[] = [], path = join(folder, "journal");
    const open: Transport["open"] = (options) => {
      const { start, ...opened } = PROCESS_TRANSPORT.open(options);
      return { ...opened, start: (request) => (given.push(request.least!), start(request)) };
    };
    const transport = { ...PROCESS_TRANSPORT, name: "watched", open };
    const options = { device: "native", workers: 1, steps: 1 } as const;
    const watched = {
      isolation: "watched",
      transport,
      runtime: "workers",
      journal: { path },
    } as const;
    const { bits } = await trainRings({ ...options, ...watched });
    assert.deepEqual(bits, (await trainRings(options)).bits);
    const [choice] = await resolveDevices("native"), permissions = devicePermissions(choice!);
    const { read = [] } = permissions;
    assert.ok(read !== true);
    const [{ permissions: got }] = given as [Least];
    assert.deepEqual(got, { ...permissions, read: [...read, path], write: [path] });

    await using system = createSystem();
    const probe = system.spawn(PROBE, undefined, { id: "probe", isolate: "process", permissions });
    for (const what of TRIES) {
      assert.equal(await system.ask(probe, { type: "Try", what }), "NotCapable", what);
    }
  },
);
