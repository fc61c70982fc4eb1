import assert from "node:assert/strict";
import fc from "../fast_check.ts";
import {
  type Action,
  ActionList,
  B,
  createSchedule,
  F,
  formatAction,
  formatCsv,
  overlap,
  parseAction,
  parseCsv,
  scheduleFromLists,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import { allCases, inWords, made } from "./cases.ts";

const number = fc.nat({ max: 5000 });
const plain = fc.tuple(fc.constantFrom("F", "B", "I", "W"), number, number)
  .map(([kind, stage, microBatch]): Action => ({ kind, stage, microBatch }));
const doubled = fc.tuple(number, number, number).map((numbers) => F(...numbers));
const halved = fc.tuple(number, number, fc.constantFrom(0, 1)).map((parts) => B(...parts));
const single = fc.oneof(plain, doubled, halved);
const action = fc.oneof(single, fc.tuple(single, single).map(([a, b]) => overlap(a, b)));

Deno.test("every action is read back as it was printed", () => {
  fc.assert(fc.property(action, (one) => assert.deepEqual(parseAction(formatAction(one)), one)));
});

Deno.test("every list of actions is unpacked, and read back from CSV, as it was", () => {
  fc.assert(fc.property(fc.array(fc.array(action), { minLength: 1 }), (lists) => {
    const packed = lists.map((list) => ActionList.from(list));
    assert.deepEqual(packed.map((list) => [...list]), lists);
    if (lists.at(-1)!.length === 0) return; // a last row without cells is no row
    assert.deepEqual(parseCsv(formatCsv(packed)).map((list) => [...list]), lists);
  }));
});

Deno.test("every schedule is the same after its way through a CSV file", () => {
  const cases = allCases().filter(({ options: { workers, microBatches } }) =>
    workers <= 8 && microBatches <= 24
  );
  fc.assert(
    fc.property(fc.constantFrom(...cases), (one) => {
      const schedule = made(one);
      // With one worker all replicas take the same way, and nothing tells them apart.
      fc.pre(schedule !== undefined && schedule.workers > 1);
      const { lists, stages, replicaOf, placement } = withLists(schedule!);
      const again = scheduleFromLists(schedule!.name, parseCsv(formatCsv(lists)));
      assert.equal(formatCsv(again.lists), formatCsv(lists), inWords(one));
      assert.equal(again.stages, stages);
      assert.deepEqual(validate(again), []);
      // Replicas without a micro-batch leave no trace in the lists.
      if (
        new Set(replicaOf).size < new Set(placement.flat().map(({ replica }) => replica)).size
      ) return;
      assert.deepEqual(again.replicaOf, replicaOf);
      assert.deepEqual(again.placement, placement);
    }),
    { numRuns: 300 },
  );
});

Deno.test("a DualPipeV file as PyTorch writes it can be loaded, and is this package's own", async () => {
  const file = new URL(
    "../golden/schedules/torch-dualpipe-v-4-workers-10-micro-batches.csv",
    import.meta.url,
  );
  const text = await Deno.readTextFile(file);
  assert.match(text, /\(0F7;7B3\)OVERLAP_F_B/);
  const loaded = scheduleFromLists("torch", parseCsv(text));
  assert.deepEqual(validate(loaded), []);
  const own = withLists(createSchedule("dualpipe-v", { workers: 4, microBatches: 10 }));
  assert.equal(formatCsv(loaded.lists), formatCsv(own.lists));
  assert.deepEqual(loaded.placement, own.placement);
});

Deno.test("what PyTorch's reader would misread stands behind a row that it refuses", () => {
  /** That reader takes a cell for the action or the overlap that it begins with. */
  const torch = /^(?:\d+[FBIW]\d+(?!s)|\(.*\)OVERLAP_F_B)/;
  const whole = /^(?:\d+[FBIW]\d+|\(\d+[FB]\d+;\d+[FB]\d+\)OVERLAP_F_B)$/;
  for (
    const one of allCases().filter(({ options: { workers, microBatches } }) =>
      workers === 4 && microBatches === 8
    )
  ) {
    const schedule = made(one);
    if (schedule === undefined) continue;
    const { lists } = withLists(schedule), csv = formatCsv(lists);
    const cells = csv.split(/[,\n]/).filter((cell) => cell !== "");
    const isRefused = !torch.test(cells[0]!);
    assert.equal(isRefused, cells.some((cell) => !whole.test(cell)), inWords(one));
  }
});

Deno.test("PyTorch's empty cells, messages and collectives are left out", () => {
  const text = '\uFEFF0UNSHARD,0F0,0SEND_F0,,"0RECV_B0",0B0,0REDUCE_GRAD,0RESHARD\r\n,1F0,1B0\r\n';
  assert.equal(formatCsv(parseCsv(text)), "0F0,0B0\n1F0,1B0\n");
});

Deno.test("text that is no action is refused with its place", () => {
  assert.throws(() => parseCsv("0F0,0B0\n1F0,1X0\n"), {
    name: "SyntaxError",
    message: "Cannot parse an action: it must be like 2F0, 0F4+5, 0B4.0, 2F0s1, 0F1&7B0 or " +
      '(0F1;7B0)OVERLAP_F_B, received "1X0" in row 2, cell 2',
  });
  for (
    const text of ["", "F0", "0F", "0B0+1", "0F0.1", "0W0.0", "0F0&1B0&2B0", "-1F0", "0F0;1B0"]
  ) {
    assert.throws(() => parseAction(text), SyntaxError, text);
  }
  assert.throws(() => parseCsv("\n"), { name: "SyntaxError", message: /received no row/ });
});

Deno.test("lists whose forwards leave a stage without a place are refused", () => {
  const message = /Cannot place the schedule x: /;
  assert.throws(() => scheduleFromLists("x", parseCsv("1F0,1B0\n")), {
    name: "RangeError",
    message,
  });
  assert.throws(() => scheduleFromLists("x", parseCsv("0F0\n0F0\n")), {
    name: "RangeError",
    message,
  });
  assert.throws(() => scheduleFromLists("x", parseCsv("9999999F9999999\n")), RangeError);
});

Deno.test("actions that do not fit into the packed form are refused", () => {
  const wrong = [
    { kind: "F", stage: 2 ** 25, microBatch: 0 },
    { kind: "F", stage: 0, microBatch: 2 ** 31 },
    { kind: "F", stage: -1, microBatch: 0 },
    { kind: "F", stage: 0.5, microBatch: 0 },
  ] as const;
  for (const one of wrong) assert.throws(() => ActionList.from([one]), RangeError);
  const nested = overlap({ kind: "F", stage: 0, microBatch: 0 }, parseAction("1F0&2F0"));
  assert.throws(() => ActionList.from([nested]), RangeError);
});
