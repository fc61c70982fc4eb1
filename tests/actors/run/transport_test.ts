/** A run whose workers are reached by a transport that the library has never heard of. */

import assert from "node:assert/strict";
import { createSystem, type TrainOptions, type Transport } from "../../../actors/mod.ts";
import { WORKER_TRANSPORT } from "../../../actors/runtime/transports/worker/worker_transport.ts";
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

/** Deno workers that lose the first message of a type on its way to the root. */
function losing(type: string): Transport {
  let isLost = false;
  const isNext = (frame: unknown) =>
    !isLost && (frame as { message?: { type: string } }).message?.type === type;
  return {
    ...WORKER_TRANSPORT,
    name: "losing",
    open(options) {
      const open = WORKER_TRANSPORT.open(options);
      return {
        ...open,
        start: (request) =>
          open.start({
            ...request,
            receive: (frame) => isNext(frame) ? void (isLost = true) : request.receive(frame),
          }),
      };
    },
  };
}

for (const schedule of ["1f1b", "pipedream"]) {
  Deno.test(`a loss that a transport loses ends ${schedule} with the step and the micro-batch`, async () => {
    const options = { schedule, workers: 2, device: "reference", isolation: "losing" } as const;
    await assert.rejects(
      outcome(SIZES, { ...options, transport: losing("Loss") }),
      /Cannot end step 1: the loss of micro-batch 0 must have come/,
    );
  });
}
