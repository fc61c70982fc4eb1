/** A run whose workers are reached by a transport that the library has never heard of. */

import assert from "node:assert/strict";
import { createSystem, type TrainOptions } from "../../../actors/mod.ts";
import { outcome, SMALL } from "../runs.ts";
import { TCP_TRANSPORT } from "../runtime/tcp_transport.ts";

const SIZES = { ...SMALL, microBatches: 4 };
const TCP = { isolation: "tcp", transport: TCP_TRANSPORT } as const;

for (
  const options of [
    { schedule: "1f1b", workers: 2 },
    { schedule: "chimera", workers: 2 },
    { schedule: "1f1b", workers: 2, replicas: 2 },
  ] satisfies Partial<TrainOptions>[]
) {
  Deno.test(`workers behind a foreign transport have the serial bits: ${JSON.stringify(options)}`, async () => {
    const device = "native";
    const [serial, run] = await Promise.all([
      outcome(SIZES, { ...options, device, runtime: "serial" }),
      outcome(SIZES, { ...options, device, ...TCP }),
    ]);
    assert.deepEqual(run.bits, serial.bits);
  });
}

Deno.test("a run outlives a worker behind a foreign transport; a system brings that with it", async () => {
  const options = { device: "reference", workers: 2 } as const, told: string[] = [];
  await using system = createSystem({ transport: TCP_TRANSPORT });
  const [serial, run] = await Promise.all([
    outcome(SIZES, { ...options, runtime: "serial" }),
    outcome(SIZES, {
      ...options,
      isolation: "tcp",
      system,
      faults: [{ worker: 1, afterActions: 9, kind: "exit" }],
      announce: (line) => void told.push(line),
    }),
  ]);
  assert.match(told.join("\n"), /the tcp of "worker-1" has ended: .*going on from the last/s);
  assert.deepEqual(run.bits, serial.bits);
});
