import { atDepth } from "../depth.ts";
import assert from "node:assert/strict";
import { scheduleCommand } from "../../console/commands/schedule.ts";
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
  parseAction,
  parseCsv,
  scheduleFromLists,
  validate,
  withLists,
} from "../../schedules/mod.ts";
import { overlap } from "../../schedules/action.ts";
import fc, { forAll } from "../fast_check.ts";
import { assertRefusals } from "../console/refusals.ts";
import { golden, inWords, made, refuses, sentenceOf, servedCases } from "./cases.ts";

const number = fc.nat({ max: 5000 });
const plain = fc.tuple(fc.constantFrom("F", "B", "I", "W"), number, number)
  .map(([kind, stage, microBatch]): Action => ({ kind, stage, microBatch }));
const doubled = fc.tuple(number, number, number).map((numbers) => F(...numbers));
const halved = fc.tuple(number, number, fc.constantFrom(0, 1)).map((parts) => B(...parts));
const single = fc.oneof(plain, doubled, halved);
const action = fc.oneof(single, fc.tuple(single, single).map(([a, b]) => overlap(a, b)));

Deno.test("every action is read back as it was printed", () =>
  forAll(100, [action], (one) => {
    assert.deepEqual(parseAction(formatAction(one)), one);
  }));

Deno.test("every list of actions survives packing, and CSV", () =>
  forAll(100, [fc.array(fc.array(action), { minLength: 1 })], (lists) => {
    const packed = lists.map((list) => ActionList.from(list));
    assert.deepEqual(packed.map((list) => [...list]), lists);
    if (lists.at(-1)!.length === 0) return; // a last row without cells is no row
    assert.deepEqual(parseCsv(formatCsv(packed)).map((list) => [...list]), lists);
  }));

// With one worker all pipelines take the same path, so lists do not distinguish them.
const SOME = servedCases(({ workers, microBatches }) =>
  workers > 1 && workers <= 8 && microBatches <= 24
);

Deno.test("every schedule is the same after its way through a CSV file", () =>
  forAll(300, [fc.constantFrom(...SOME)], (one) => {
    const { name, lists, stages, pipelineOf, placement } = withLists(made(one)!);
    const again = scheduleFromLists(name, parseCsv(formatCsv(lists)));
    assert.equal(formatCsv(again.lists), formatCsv(lists), inWords(one));
    assert.equal(again.stages, stages);
    assert.deepEqual(validate(again), []);
    // Pipelines without a micro-batch do not appear in the lists.
    const pipelines = new Set(placement.flat().map(({ pipeline }) => pipeline));
    if (new Set(pipelineOf).size < pipelines.size) return;
    assert.deepEqual([again.pipelineOf, again.placement], [pipelineOf, placement]);
  }));

Deno.test("a DualPipeV file of PyTorch can be read, and equals the schedule of this package", () => {
  const text = golden("torch-dualpipe-v-4-workers-10-micro-batches.csv");
  assert.match(text, /\(0F7;7B3\)OVERLAP_F_B/);
  const loaded = scheduleFromLists("torch", parseCsv(text));
  assert.deepEqual(validate(loaded), []);
  const own = withLists(createSchedule("dualpipe-v", { workers: 4, microBatches: 10 }));
  assert.equal(formatCsv(loaded.lists), formatCsv(own.lists));
  assert.deepEqual(loaded.placement, own.placement);
});

Deno.test("a file that PyTorch would misread begins with a row that PyTorch refuses", () => {
  /** The action or the overlap at the start of a cell, as which PyTorch reads the cell. */
  const torch = /^(?:\d+[FBIW]\d+(?!s)|\(.*\)OVERLAP_F_B)/;
  const whole = /^(?:\d+[FBIW]\d+|\(\d+[FB]\d+;\d+[FB]\d+\)OVERLAP_F_B)$/;
  const cases = servedCases(({ workers, microBatches }) => workers === 4 && microBatches === 8);
  for (const one of cases) {
    const cells = formatCsv(withLists(made(one)!).lists).match(/[^,\n]+/g)!;
    const isMisread = cells.some((cell) => !whole.test(cell));
    assert.equal(!torch.test(cells[0]!), isMisread, inWords(one));
  }
});

Deno.test("empty cells, messages and collectives of PyTorch are skipped", () => {
  const text = '\uFEFF0UNSHARD,0F0,0SEND_F0,,"0RECV_B0",0B0,0REDUCE_GRAD,0RESHARD\r\n,1F0,1B0\r\n';
  assert.equal(formatCsv(parseCsv(text)), "0F0,0B0\n1F0,1B0\n");
});

/** The refusal of a schedule that a PyTorch file cannot express. */
function unsayable({ placement, lists, pipelineOf }: ListedSchedule): RegExp | undefined {
  if (/\d\+\d|\.[01]|\ds\d/.test(lists.join())) {
    return /each action must be one of a whole micro-batch/;
  }
  const held = placement.flatMap((stages) => {
    const used = stages.filter(({ pipeline }) => pipelineOf.includes(pipeline));
    return [...new Set(used.map(({ stage }) => stage))];
  });
  return new Set(held).size < held.length ? /each stage must be on one worker/ : undefined;
}

Deno.test("every schedule that a PyTorch file can express is read back from it, and keeps PyTorch's rules", () => {
  const said = new Set<string>(), refused = new Set<string>();
  const cases = servedCases(({ workers, microBatches }) =>
    workers <= atDepth(4, 6) && microBatches <= atDepth(10, 16)
  );
  for (const one of cases) {
    const listed = withLists(made(one)!), where = inWords(one), why = unsayable(listed);
    (why ? refused : said).add(one.name);
    if (why) refuses(() => formatTorchCsv(listed.lists), why, where);
    else {
      const lists = parseCsv(formatTorchCsv(listed.lists));
      assert.equal(formatCsv(lists), formatCsv(listed.lists), where);
      assert.equal(scheduleFromLists("again", lists).placement.length, listed.workers, where);
    }
  }
  const sayable = ["1f1b", "interleaved-zb", "hanayo", "zb-v", "dualpipe-v", "seq1f1b"];
  assert.deepEqual(sayable.filter((name) => !said.has(name)), []);
  const others = ["chimera", "chimera-wave", "gems", "dualpipe", "chimera-greedy", "seq1f1b"];
  assert.deepEqual(others.filter((name) => !refused.has(name)), []);
});

Deno.test("an action that a PyTorch file cannot express is refused by name", async () => {
  await assertRefusals("pytorch", (words) => {
    const isList = words[0]!.includes(","), csv = `${words.join("\n")}\n`;
    return sentenceOf(() => isList ? formatTorchCsv(parseCsv(csv)) : scheduleCommand(words).text);
  });
});
