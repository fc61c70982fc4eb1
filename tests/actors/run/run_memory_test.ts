import assert from "node:assert/strict";
import {
  actorBytes,
  planRunMemory,
  type RunMemoryOptions,
} from "../../../actors/run/memory/run_memory.ts";
import { compileRun } from "../../../actors/run/compile_run.ts";
import { gpt2, totalBytes } from "../../../kernels/mod.ts";
import { createSchedule } from "../../../schedules/mod.ts";

const CONFIG = { layers: 4, hidden: 32, heads: 2, seq: 8, vocab: 64 };
const ROWS = 2 * CONFIG.seq, BOUNDARY_BYTES = 4 * ROWS * CONFIG.hidden, FIELD_BYTES = 2 * 4 * ROWS;

/** A run of two workers in one thread of the reference device, which takes nothing for itself. */
function planOf(changed: Partial<RunMemoryOptions> & { readonly name?: string } = {}) {
  const { name = "1f1b", replicas = 1, ...options } = changed;
  const schedule = createSchedule(name, { workers: 2, microBatches: 4 });
  const model = gpt2(CONFIG, 2), compiled = compileRun({ model, replicas }, schedule, "reference");
  const run = planRunMemory({
    schedule,
    compiled,
    replicas,
    devices: [{ name: "reference" }],
    coarsening: 4,
    reduce: "deterministic",
    runtime: "workers",
    isolation: "worker",
    retries: 0,
    steps: 100,
    returnWeights: false,
    ...options,
  });
  return { ...run, compiled };
}

Deno.test("a run in all is its stages and what each actor holds beside them", () => {
  for (const replicas of [1, 3]) {
    const { workers, supervisor, totalBytes: all, compiled } = planOf({ replicas });
    const stages = compiled.memory.reduce(
      (sum, { device, host }) => sum + totalBytes(device) + totalBytes(host),
      0,
    );
    const beside = workers.reduce((sum, one) => sum + actorBytes(one), 0);
    assert.equal(all, replicas * (stages + beside) + actorBytes(supervisor));
  }
});

Deno.test("activations under way are as many as are in flight, none leave the last stage", () => {
  const { workers, supervisor } = planOf();
  assert.deepEqual(workers.map(({ messages }) => messages), [2 * BOUNDARY_BYTES, 0]);
  assert.deepEqual(workers.map(({ fields }) => fields), [2 * FIELD_BYTES, FIELD_BYTES]);
  assert.equal(supervisor.fields, 2 * 4 * FIELD_BYTES);
});

Deno.test("gradients of copies lie in rows that threads share, or in chunks on their way", () => {
  const sums = (options: Partial<RunMemoryOptions>) => {
    const { workers, supervisor } = planOf({ replicas: 2, ...options });
    return [supervisor.sums, ...workers.map((one) => one.sums)];
  };
  const { memory } = planOf({ replicas: 2 }).compiled;
  const gradients = memory.reduce((sum, { device }) => sum + device.gradients, 0);
  assert.deepEqual(sums({}), [2 * gradients, 0, 0]);
  for (
    const options of [{ isolation: "process" }, { link: { latencyUs: 1, gigabytesPerSecond: 1 } }]
  ) {
    const [rows, ...chunks] = sums(options);
    assert.equal(rows, 0);
    assert.ok(chunks.every((bytes) => bytes > 0), `${chunks}`);
  }
  assert.deepEqual(planOf().supervisor.sums, 0);
});

Deno.test("a snapshot in memory is counted once there will be one, and the steps since", () => {
  const base = planOf().supervisor;
  const { compiled: { model } } = planOf();
  const state = 3 * 4 *
    model.parameters.reduce(
      (sum, { shape }) => sum + shape.reduce((product, size) => product * size, 1),
      0,
    );
  const kept = (steps: number) => planOf({ retries: 3, snapshots: "memory", steps }).supervisor;
  assert.equal(kept(9).state, base.state);
  assert.equal(kept(10).state, base.state + state);
  assert.equal(kept(9).fields, base.fields + 9 * 4 * FIELD_BYTES);
  assert.equal(kept(99).fields, base.fields + 10 * 4 * FIELD_BYTES);
  const onDisk = planOf({ retries: 3, snapshots: "disk", steps: 1000 }).supervisor;
  assert.equal(onDisk.state, base.state);
  assert.equal(onDisk.fields, base.fields + 100 * 4 * FIELD_BYTES);
});

Deno.test("a serial run has each stage once, whatever its workers would hold", () => {
  const { compiled, workers, totalBytes: all, supervisor } = planOf({
    name: "chimera",
    runtime: "serial",
  });
  assert.deepEqual(workers, []);
  const twice = compiled.memory.reduce((sum, { device }) => sum + totalBytes(device), 0);
  assert.ok(all - actorBytes(supervisor) < 0.6 * twice);
  // One copy's gradients on the host, and the sum of both.
  const gradients = compiled.memory.reduce((sum, { device }) => sum + device.gradients, 0) / 2;
  assert.equal(supervisor.sums, 2 * gradients);
});
