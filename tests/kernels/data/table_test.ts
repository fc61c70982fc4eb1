/** Tables: CSV, TSV, JSON lines and images with a schema, shuffled, split and cut into micro-batches. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32, deflateSync } from "node:zlib";
import { Dataset } from "../../../kernels/mod.ts";
import { npmPackageFolder } from "../../../kernels/data/npm_packages.ts";
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
  for (const y of [null, " ", []]) refused({ ...good, y }, /number in the column "y" of row 2/);
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

const jpegJs = async () => {
  const root = await npmPackageFolder({ name: "jpeg-js", version: "0.4.4", megabytes: 1 });
  return createRequire(import.meta.url)(fileURLToPath(new URL("index.js", root)));
};

/** Returns a chunk of a PNG file. */
function pngChunk(type: string, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const chunk = new Uint8Array(12 + data.length), view = new DataView(chunk.buffer);
  view.setUint32(0, data.length);
  chunk.set(new TextEncoder().encode(type), 4);
  chunk.set(data, 8);
  view.setUint32(8 + data.length, crc32(chunk.subarray(4, 8 + data.length)));
  return chunk;
}

interface PngParts {
  readonly width: number;
  readonly height: number;
  readonly colourType: number;
  readonly depth?: number;
  readonly interlace?: number;
  /** Rows of bytes, each behind the type of its filter; by default 0. */
  readonly rows: Uint8Array;
  readonly more?: readonly Uint8Array[];
}

function png({ width, height, colourType, depth = 8, interlace = 0, rows, more = [] }: PngParts) {
  const header = new Uint8Array([...new Uint8Array(8), depth, colourType, 0, 0, interlace]);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  const signature = Uint8Array.of(137, 80, 78, 71, 13, 10, 26, 10);
  const chunks = [pngChunk("IHDR", header), ...more, pngChunk("IDAT", deflateSync(rows))];
  const parts = [signature, ...chunks, pngChunk("IEND", new Uint8Array())];
  return new Uint8Array(parts.flatMap((part) => [...part]));
}

/** 2 × 3 pixels, whose second row is the difference to the first. */
const COLOURS = png({
  ...{ width: 3, height: 2, colourType: 2 },
  rows: Uint8Array.of(0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 2, 0, 51, 0, 0, 0, 51, 51, 0, 0),
});
const COLOUR_VALUES = [
  ...[255, 0, 0, 255, 0, 51, 0, 255, 0, 51, 255, 0, 0, 0, 255, 0, 51, 255],
];
const GREY = png({
  ...{ width: 3, height: 2, colourType: 0 },
  rows: Uint8Array.of(0, 10, 20, 30, 0, 40, 50, 60),
});

const near = (found: Iterable<number>, wanted: readonly number[], off = 1e-6) => {
  const all = [...found];
  assert.equal(all.length, wanted.length);
  all.forEach((value, i) => assert.ok(Math.abs(value - wanted[i]!) <= off, `${i}: ${value}`));
};

folderTest("images in folders have their folder's class, a size and a scale", async (folder) => {
  const put = async (path: string, bytes: Uint8Array) => {
    await Deno.mkdir(join(folder, path, ".."), { recursive: true });
    await Deno.writeFile(join(folder, path), bytes);
  };
  const palette = png({
    ...{ width: 3, height: 2, colourType: 3, depth: 4, rows: Uint8Array.of(0, 1, 0, 0, 0, 16) },
    more: [pngChunk("PLTE", Uint8Array.of(1, 2, 3, 4, 5, 6))],
  });
  await put("dog/b.png", GREY);
  await put("cat/2.png", COLOURS);
  await put("cat/10.png", palette);
  await put("dog/.hidden", Uint8Array.of(1));
  await put("read.me", Uint8Array.of(1));
  const schema = {
    pixels: { image: "file", size: [3, 2, 3] },
    label: { category: "folder" },
  } as const;
  const images = await Dataset.readImages(folder, schema);
  assert.deepEqual(images.classes, { label: ["cat", "dog"] });
  assert.deepEqual(images.batches({ samples: 1 }).sizes, { pixels: 18, label: 2 });
  const [first, second, third] = images.inOrder(1).map(({ pixels, label }) => {
    const values = Array.from(pixels as Float32Array, (value) => Math.round(255 * value));
    return [values, label![0]];
  });
  assert.deepEqual(first, [[1, 4, 1, 1, 1, 4, 2, 5, 2, 2, 2, 5, 3, 6, 3, 3, 3, 6], 0]);
  assert.deepEqual(second, [COLOUR_VALUES, 0]);
  const greys = [10, 20, 30, 40, 50, 60];
  assert.deepEqual(third, [[...greys, ...greys, ...greys], 1]);
  const scale = { size: [1, 2, 3], mean: [0.5], std: [0.25] } as const;
  const one = Dataset.of([{ file: GREY }], { pixels: { image: "file", ...scale } });
  near(one.row(0)["pixels"] as Float32Array, greys.map((value) => (value / 255 - 0.5) / 0.25));
  const { pixels } = one.encode([{ file: { bytes: GREY } }, { file: GREY }]);
  assert.deepEqual((pixels as Float32Array).subarray(6), one.row(0)["pixels"]);
  // A column of paths, from the folder of the table.
  await Deno.writeTextFile(join(folder, "table.csv"), "file,folder\ncat/2.png,cat\n");
  const table = await Dataset.readCsv(join(folder, "table.csv"), schema);
  assert.deepEqual(table.row(0), images.row(1));
  await put("dog/inner/a.png", GREY);
  await assert.rejects(
    Dataset.readImages(folder, schema),
    /images only, received the folder inner/,
  );
});

folderTest(
  "damaged and hostile images are refused by name, before they are decoded",
  async (folder) => {
    const { encode } = await jpegJs(), data = new Uint8Array(4 * 64 * 64).map((_, i) => i / 80);
    const jpeg = new Uint8Array(encode({ width: 64, height: 64, data }, 90).data);
    const jpegSchema = { pixels: { image: "file", size: [3, 64, 64] } } as const;
    await Deno.mkdir(join(folder, "a"));
    await Deno.writeFile(join(folder, "a/1.jpg"), jpeg);
    const { pixels } = (await Dataset.readImages(folder, jpegSchema)).row(0);
    // The encoder loses little of what it is given.
    const off = Array.from(pixels as Float32Array, (value, i) => {
      const [channel, pixel] = [Math.floor(i / 4096), i % 4096];
      return Math.abs(255 * value - data[4 * pixel + channel]!);
    });
    assert.ok(off.reduce((sum, one) => sum + one) / off.length < 3);
    const size = [3, 2, 3] as const, large = { width: 100_000, height: 100_000, colourType: 2 };
    const frame = jpeg.findIndex((_, i) => jpeg[i] === 0xff && jpeg[i + 1] === 0xc0);
    const changed = (bytes: Uint8Array, at: number, ...values: number[]) => {
      const copy = bytes.slice();
      copy.set(values, at);
      return copy;
    };
    const bomb = { width: 3, height: 2, colourType: 2, rows: new Uint8Array(1_000_000) };
    const cases: [bytes: Uint8Array, size: readonly [number, number, number], RegExp][] = [
      [
        new TextEncoder().encode("GIF89a, not an image at all, and long"),
        size,
        /PNG or JPEG image/,
      ],
      [new Uint8Array(), size, /PNG or JPEG image/],
      [COLOURS.subarray(0, 40), size, /whole image/],
      [COLOURS.subarray(0, -13), size, /whole image/],
      [changed(COLOURS, 45, 1, 2, 3), size, /whole image/],
      [png({ width: 3, height: 2, colourType: 2, rows: new Uint8Array(9) }), size, /whole image/],
      [png({ width: 3, height: 2, colourType: 2, rows: bomb.rows }), size, /whole image/],
      [png({ ...large, rows: new Uint8Array(9) }), size, /received 3 × 100000 × 100000/],
      [png({ ...bomb, interlace: 1 }), size, /without interlacing, received Adam7/],
      [GREY, [3, 3, 2], /an image of 3 × 3 × 2, received 1 × 2 × 3/],
      [COLOURS, [1, 2, 3], /an image of 1 × 2 × 3, received 3 × 2 × 3/],
      [COLOURS, [4, 2, 3], /an image of 4 × 2 × 3/],
      [jpeg.subarray(0, 300), jpegSchema.pixels.size, /whole image/],
      [jpeg.subarray(0, jpeg.length / 2), jpegSchema.pixels.size, /whole image/],
      [changed(jpeg, frame + 5, 255, 255, 255, 255), jpegSchema.pixels.size, /3 × 65535 × 65535/],
      [changed(jpeg, 4, 0, 0), jpegSchema.pixels.size, /PNG or JPEG image/],
    ];
    for (const [i, [bytes, size, message]] of cases.entries()) {
      const path = join(folder, "a/1.jpg");
      await Deno.writeFile(path, bytes);
      await assert.rejects(
        Dataset.readImages(folder, { pixels: { image: "file", size } }),
        ({ name, message: text }) =>
          name === "RangeError" && text.startsWith(`Cannot read ${path}: it must be`) &&
          message.test(text),
        `case ${i}`,
      );
    }
  },
);
