import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import { scheduleCommand } from "../../console/mod.ts";
import {
  type Action,
  ActionList,
  B,
  createSchedule,
  F,
  formatAction,
  formatCsv,
  formatTorchCsv,
  type ListedSchedule,
  overlap,
  parseAction,
  parseCsv,
  scheduleDefinitions,
  scheduleFromLists,
  type ScheduleOptions,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import fc from "../fast_check.ts";
import { allCases, inWords, made, refuses } from "./cases.ts";

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
  refuses(() => scheduleFromLists("x", parseCsv("1F0,1B0\n")), message);
  refuses(() => scheduleFromLists("x", parseCsv("0F0\n0F0\n")), message);
  refuses(() => scheduleFromLists("x", parseCsv("9999999F9999999\n")));
});

Deno.test("actions that do not fit into the packed form are refused", () => {
  const wrong = [
    { kind: "F", stage: 2 ** 25, microBatch: 0 },
    { kind: "F", stage: 0, microBatch: 2 ** 31 },
    { kind: "F", stage: -1, microBatch: 0 },
    { kind: "F", stage: 0.5, microBatch: 0 },
  ] as const;
  for (const one of wrong) refuses(() => ActionList.from([one]));
  const nested = overlap({ kind: "F", stage: 0, microBatch: 0 }, parseAction("1F0&2F0"));
  refuses(() => ActionList.from([nested]));
});

/** What a schedule has that PyTorch's file cannot say, by the sentence that refuses it. */
function unsayable({ placement, lists, replicaOf }: ListedSchedule): RegExp | undefined {
  if (/\d\+\d|\.[01]|\ds\d/.test(lists.join())) {
    return /each action must be one of a whole micro-batch/;
  }
  const held = placement.flatMap((stages) => {
    const used = stages.filter(({ replica }) => replicaOf.includes(replica));
    return [...new Set(used.map(({ stage }) => stage))];
  });
  return new Set(held).size < held.length ? /each stage must be on one worker/ : undefined;
}

Deno.test("every schedule that PyTorch's file can say is read back from it, and keeps PyTorch's rules", () => {
  const said = new Set<string>(), refused = new Set<string>();
  for (const one of allCases()) {
    const { workers, microBatches } = one.options;
    if (workers > atDepth(4, 6) || microBatches > atDepth(10, 16)) continue;
    const schedule = made(one), where = inWords(one);
    if (schedule === undefined) continue;
    const listed = withLists(schedule), why = unsayable(listed);
    if (why) {
      refuses(() => formatTorchCsv(listed.lists), why, where);
      refused.add(one.name);
      continue;
    }
    const csv = formatTorchCsv(listed.lists), lists = parseCsv(csv);
    assert.equal(formatCsv(lists), formatCsv(listed.lists), where);
    assert.deepEqual(scheduleFromLists("again", lists).placement.length, listed.workers, where);
    said.add(one.name);
  }
  for (const name of ["1f1b", "interleaved-zb", "hanayo", "zb-v", "dualpipe-v", "seq1f1b"]) {
    assert.ok(said.has(name), name);
  }
  for (const name of ["chimera", "chimera-wave", "gems", "dualpipe", "chimera-greedy", "seq1f1b"]) {
    assert.ok(refused.has(name), name);
  }
});

/** What `troupe schedule` says of what PyTorch's file cannot say. */
const REFUSED: readonly [line: string, message: RegExp][] = [
  ["chimera", /each stage must be on one worker, received stage 1 on workers 1 and 2$/],
  ["chimera --scale doubling", /or an overlap of a forward and a backward, received 0F4\+5$/],
  ["chimera --micro-batches 4 --scale halving", /received 3B2\.0$/],
  ["gems", /each stage must be on one worker, received stage 2 on workers 1 and 2$/],
  ["dualpipe", /each stage must be on one worker, received stage \d on workers \d and \d$/],
  ["seq1f1b --slices 2", /each action must be one of a whole micro-batch.*, received 0F0s0$/],
  ["pipedream", /the weights must change after the step, received pipedream, .*every-backward$/],
  ["pipedream-2bw", /received pipedream-2bw, whose updates are double-buffered$/],
];

Deno.test("what PyTorch's file cannot say is refused by name", () => {
  for (const [line, message] of REFUSED) {
    const sizes = line.includes("--micro-batches") ? "" : " --micro-batches 8";
    const words = `${line} --workers 4${sizes} --format pytorch`.split(" ");
    refuses(() => scheduleCommand(words), message, line);
  }
  const written = (csv: string) => () => formatTorchCsv(parseCsv(csv));
  assert.throws(written("0F0,0R0,0B0\n"), /received 0R0$/);
  assert.throws(written("0F0,0F1&0I0,0W0,0B1\n"), /received 0F1&0I0$/);
  assert.throws(
    written("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n"),
    /the last stage must take micro-batches in order, received 1F1 as number 0$/,
  );
});

Deno.test("every schedule whose stages are on one worker each can be written for PyTorch", () => {
  const options: ScheduleOptions = { workers: 4, microBatches: 8 };
  for (const { name } of scheduleDefinitions) {
    const listed = withLists(createSchedule(name, options));
    if (unsayable(listed) || listed.updates !== "flush") continue;
    const words = `${name} --workers 4 --micro-batches 8 --format pytorch`.split(" ");
    assert.ok(scheduleCommand(words).output.startsWith("0F0,"), name);
  }
});
