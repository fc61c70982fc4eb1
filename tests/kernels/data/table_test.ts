/** Tables: CSV, TSV and JSON lines with a schema, shuffled, split and cut into micro-batches. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { Dataset } from "../../../kernels/mod.ts";
import { parseRows } from "../../../kernels/data/table.ts";
import { folderTest } from "../../in_folder.ts";

const SCHEMA = {
  point: { numbers: ["x", "y"] },
  label: { category: "colour" },
  words: { text: "note", encode: (text: string) => new TextEncoder().encode(text), length: 3 },
} as const;

/** Rows whose x is their number. */
const numbered = (count: number) =>
  Dataset.of(Array.from({ length: count }, (_, x) => ({ x })), { x: { numbers: ["x"] } });

const numbersOf = (batch: object) => [...(batch as { x: Float32Array }).x];

folderTest("CSV, TSV and JSON lines are the same table", async (folder) => {
  const write = async (name: string, text: string) => {
    await Deno.writeTextFile(join(folder, name), text);
    return join(folder, name);
  };
  const csv = '\ufeffx,y,colour,note\r\n1,-2.5e1,"red, dark","say ""hi"""\r\n\r\n3,4,blue,\r\n';
  const tsv = 'x\ty\tcolour\tnote\n1\t-25\tred, dark\t"say ""hi"""\n3\t4\tblue\t';
  const lines = '{"x":1,"y":-25,"colour":"red, dark","note":"say \\"hi\\""}\n' +
    '{"x":3,"y":4,"colour":"blue","note":""}\n';
  const tables = [
    await Dataset.readCsv(await write("a.csv", csv), SCHEMA),
    await Dataset.readCsv(await write("a.tsv", tsv), SCHEMA),
    await Dataset.readJsonLines(await write("a.jsonl", lines), SCHEMA),
  ];
  for (const table of tables) {
    assert.deepEqual(table.classes, { label: ["blue", "red, dark"] });
    assert.deepEqual(table.inOrder(2), [{
      point: Float32Array.of(1, -25, 3, 4),
      label: Int32Array.of(1, 0),
      words: Int32Array.of(115, 97, 121, -1, -1, -1),
    }]);
  }
});

Deno.test("a value that does not fit is refused with its row and column", () => {
  const refused = (row: Record<string, unknown>, message: RegExp) =>
    assert.throws(() => Dataset.of([{ x: 1, y: 1, colour: "red", note: "" }, row], SCHEMA), {
      name: "RangeError",
      message,
    });
  const good = { x: 1, y: 1, colour: "red", note: "" };
  refused({ ...good, y: "" }, /number in the column "y" of row 2, received $/);
  refused({ ...good, y: "1,5" }, /number in the column "y" of row 2, received 1,5/);
  refused({ x: 1, colour: "red", note: "" }, /column "y" of row 2, received undefined/);
  refused({ ...good, note: 3 }, /a text in the column "note" of row 2/);
  const fixed = { label: { category: "colour", classes: ["red"] } };
  assert.throws(() => Dataset.of([{ colour: "blue" }], fixed), /one of red .* received blue/);
  assert.throws(() => Dataset.of([], SCHEMA), /row at least, received none/);
});

Deno.test("quotes, separators and ends of lines are those of RFC 4180", () => {
  const cases: [string, string[][]][] = [
    ["", []],
    ["a", [["a"]]],
    ["a,", [["a", ""]]],
    [",", [["", ""]]],
    ['""\n', [[""]]],
    ['"a\r\nb",c\r\n', [["a\r\nb", "c"]]],
    ['a"b,c', [['a"b', "c"]]],
  ];
  for (const [text, rows] of cases) assert.deepEqual(parseRows(text, ","), rows, text);
  assert.throws(() => parseRows('a\n"b"c', ","), /line 2 must end before the next value/);
  assert.throws(() => parseRows('"a', ","), SyntaxError);
});

Deno.test("each epoch has each row once, in an order of (seed, epoch), from any micro-batch", () => {
  const { from, length } = numbered(10).batches({ samples: 4, seed: 3 });
  assert.equal(length, 2.5);
  const all = from(0), first = Array.from({ length: 5 }, () => all.next().value!);
  const rows = first.flatMap(numbersOf), epochs = [rows.slice(0, 10), rows.slice(10)];
  const sorted = Array.from({ length: 10 }, (_, i) => i);
  for (const epoch of epochs) assert.deepEqual(epoch.toSorted((a, b) => a - b), sorted);
  assert.notDeepEqual(epochs[0], epochs[1]);
  assert.deepEqual(from(3).next().value, first[3], "resumed in the second epoch");
  const other = numbered(10).batches({ samples: 10, seed: 4 }).from(0).next().value!;
  assert.notDeepEqual(numbersOf(other), epochs[0]);
});

Deno.test("a split has each row once, and keeps changes of rows and classes", () => {
  const doubled = numbered(20).map(({ x }, i) => {
    assert.equal((x as Float32Array)[0], i);
    return { x: (x as Float32Array).map((one) => 2 * one) };
  });
  const { train, validation } = doubled.split(0.25, 5);
  assert.deepEqual([train.length, validation.length], [15, 5]);
  const rows = [...train.inOrder(15), ...validation.inOrder(5)].flatMap(numbersOf);
  assert.deepEqual(rows.toSorted((a, b) => a - b), Array.from({ length: 20 }, (_, i) => 2 * i));
  assert.deepEqual(doubled.split(0.25, 5).validation.inOrder(5), validation.inOrder(5));
  assert.notDeepEqual(doubled.split(0.25, 6).validation.inOrder(5), validation.inOrder(5));
  assert.throws(() => numbered(1).split(), /share must be/);
});
