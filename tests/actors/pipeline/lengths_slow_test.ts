/**
 * Samples of different lengths train as they are: losses, norms and weights have the bits of the serial
 * run over the same lengths, and are near those of samples that are padded to the longest.
 */

import assert from "node:assert/strict";
import { mlp } from "../../../kernels/mod.ts";
import { batchesOf, shortened, type Sizes, unequalBatches } from "../runs.ts";
import { atDepth } from "../../depth.ts";
import { inLanes } from "../../lanes.ts";
import { assertRefused, DELAYS, openOracle, type Options, TINY, trained } from "./trained.ts";

const SIZES: Sizes = { ...TINY, layers: 2, seq: 16, tie: true };

/** Each length costs a compilation on each stage. */
const DATA = unequalBatches(SIZES, 64, atDepth([16, 6, 4, 10], undefined)),
  LENGTHS: Options = { lengths: true, data: DATA, workers: 2 };

const BY_BYTES: Options = { schedule: "message-driven", scheduleOptions: { limitBy: "bytes" } };

const CASES: readonly (readonly [what: string, shared: Options, how?: Options])[] = [
  ["message-driven, evaluated", {
    schedule: "message-driven",
    evaluation: { batches: DATA.slice(0, 3), every: 1 },
  }],
  ["in processes", { schedule: "message-driven" }, { runtime: "workers", isolation: "process" }],
  ["by bytes", BY_BYTES],
  ["by bytes, two stages on each worker", {
    ...{ schedule: "message-driven", recomputeInterval: 1 },
    scheduleOptions: { chunks: 2, limitBy: "bytes", order: "bf" },
  }],
  ["in two replicas", { schedule: "1f1b", replicas: 2 }, { sync: "eager", bucketSize: 200 }],
  ["split, recomputed", { schedule: "zb-h1" }, { recomputeInterval: 1, recompute: "full" }],
  ["in halves", { schedule: "chimera", scheduleOptions: { scale: "halving" } }],

  ["fp16", { schedule: "1f1b", precision: "fp16", lossScale: 1024 }],
];

Deno.test("lengths have the bits of their serial run, whatever the schedule and the delays", async () => {
  const oracle = openOracle(SIZES);
  await inLanes(CASES, async ([what, shared, how]) => {
    await oracle(what, { ...LENGTHS, ...shared }, { link: DELAYS, ...how });
  });
});

Deno.test("workers hold for lengths what the plan says, byte by byte, which is that of the longest", async () => {
  const run: Options = { ...LENGTHS, schedule: "zb-h1", runtime: "local" };
  const { plan, end } = await trained(SIZES, run);
  assert.deepEqual(end.memory, plan.memory.map(({ device, host }) => ({ device, host })));
  const longest = await trained(SIZES, { ...run, lengths: false, data: batchesOf(SIZES) });
  const held = ({ device }: { device: { activations: number } }) => device.activations;
  for (const [worker, one] of longest.plan.memory.entries()) {
    assert.ok(held(plan.memory[worker]!) < 1.2 * held(one), `worker ${worker}`);
  }
});

Deno.test("limits in bytes hold more of the short samples in the memory of as many long ones", async () => {
  const held = async (limitBy: "bytes" | "count") => {
    const sizes = { ...SIZES, steps: 8, microBatches: 8 };
    const run: Options = { ...LENGTHS, ...BY_BYTES, scheduleOptions: { limitBy } };
    const { plan, end } = await trained(sizes, { ...run, runtime: "local", link: DELAYS });
    for (const [worker, { device }] of end.memory!.entries()) {
      const planned = plan.memory[worker]!.device, { activations: most } = planned;
      assert.ok(device.activations <= most, `worker ${worker}: ${device.activations} of ${most}`);
      assert.deepEqual({ ...device, activations: most }, planned);
    }
    return [end.peakActivations[0]!, plan.memory[0]!.device.activations] as const;
  };
  const [[few, overlaid], [many, own]] = [await held("count"), await held("bytes")];
  assert.ok(few === 2 && many > 2, `${few} and ${many} micro-batches at a time`);
  assert.ok(own <= overlaid, `${own} bytes, not ${overlaid}`);
});

Deno.test("a worker that fails among lengths is started again, and the weights have the same bits", async () => {
  const fault = { worker: 1, afterActions: 11, kind: "throw" } as const;
  const run = { ...LENGTHS, schedule: "message-driven" };
  await openOracle(SIZES)("fault", run, { runtime: "workers", faults: [fault] });
});

Deno.test("lengths that cannot be are refused before anything runs", async () => {
  await assertRefused("lengths", SIZES, {
    "slices": { ...LENGTHS, schedule: "seq1f1b", scheduleOptions: { slices: 2 } },
    "no sequences": { ...LENGTHS, model: mlp({ inputs: 2, hidden: 4, layers: 2, classes: 3 }, 2) },
    "a length that is no eighth": { ...LENGTHS, data: [shortened(SIZES, batchesOf(SIZES)[0]!, 9)] },
    "lengths that nothing says": { ...LENGTHS, lengths: false },
  });
});
