/** Tables: CSV, TSV, JSON lines, Parquet and images with a schema, shuffled, split and cut into micro-batches. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32, deflateSync } from "node:zlib";
import { Dataset, type TableSchema } from "../../../kernels/mod.ts";
import { npmPackageFolder } from "../../../kernels/data/npm_packages.ts";
import { parseRows } from "../../../kernels/data/table.ts";
import { folderTest } from "../../in_folder.ts";
import { assertRefused } from "../graph/refused.ts";
import { farthest } from "../../onnx.ts";

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

folderTest("whole numbers of JSON lines are as long as they are written", async (folder) => {
  const path = join(folder, "a.jsonl"),
    ids = ["9007199254740992", "9007199254740993", "-1", "1e20"];
  await Deno.writeTextFile(path, ids.map((id) => `{"id":${id}}\n`).join(""));
  const schema = { label: { category: "id" }, id: { numbers: ["id"] } } as const;
  const table = await Dataset.readJsonLines(path, schema);
  assert.deepEqual(table.classes, { label: ["-1", "100000000000000000000", ...ids.slice(0, 2)] });
  assert.deepEqual(table.row(1), { label: Int32Array.of(3), id: Float32Array.of(2 ** 53) });
});

folderTest("files that are no tables are refused in one sentence", async (folder) => {
  const path = join(folder, "a"), schema = { x: { numbers: ["x"] } };
  const read = async (bytes: string | Uint8Array, how: "readCsv" | "readJsonLines") => {
    await Deno.writeFile(path, typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes);
    return await Dataset[how](path, schema);
  };
  const bytes = [Uint8Array.of(120, 10, 0xe9), Uint8Array.of(255, 254, 120, 0)];
  const rows = numbered(3), text = { text: "x", encode: () => [], length: -1 };
  await assertRefused("tables", [
    ...["x,y,x\n1,2,3\n", 'x\n"1', ...bytes].map((csv) =>
      [{ csv }, () => read(csv, "readCsv")] as const
    ),
    ...['"text"\n', "[1]\n", '{"x": 1}\n{x}\n'].map((lines) =>
      [{ lines }, () => read(lines, "readJsonLines")] as const
    ),
    ...(["readCsv", "readJsonLines", "readParquet"] as const).map((how) =>
      [`${how} of a folder`, () => Dataset[how](folder, schema)] as const
    ),
    ["readImages of a file", () => Dataset.readImages(path, schema)],
    ["no samples", () => rows.inOrder(0)],
    ["samples in a record", () => rows.inOrder({ samples: 8 } as never)],
    ["more samples than rows", () => rows.inOrder(4)],
    ["no such row", () => rows.row(3)],
    ["a split of a row", () => numbered(1).split()],
    ["a share of text", () => rows.split("0.5" as never)],
    ...[-1, 0.5].map((number) =>
      [`from ${number}`, () => rows.batches({ samples: 1 }).from(number).next()] as const
    ),
    ["another option", () => rows.batches({ samples: 1, shuffle: false } as never)],
    ["another augmentation", () => rows.augment("x", { size: [1, 1, 1], rotate: 1 } as never)],
    ["no changed row", () => rows.map(() => undefined as never).batches({ samples: 1 })],
    ["fewer values", () => rows.map((_, i) => ({ x: new Float32Array(3 - i) })).inOrder(3)],
    ["rows of text", () => Dataset.of("x" as never, schema)],
    ...[
      ...[undefined, {}, { x: "x" }, { x: { number: ["x"] } }, { x: { category: "x", class: [] } }],
      ...[{ x: { numbers: "x" } }, { x: { numbers: [] } }, { x: { category: ["x"] } }],
      ...[{ x: { category: "x", classes: ["a", "a"] } }, { x: { text: "y", length: 1 } }],
      ...[{ x: { image: "y" } }, { x: { image: "y", size: [1, 1, 1, 1] } }],
      { x: { image: "y", size: [1, 1, 1], mean: null } },
      ...[() => Promise.resolve([1]), () => [0.5]]
        .map((encode) => ({ x: { text: "y", length: 1, encode } })),
    ].map((schema) => [{ schema }, () => Dataset.of([{ x: 1, y: "a" }], schema as never)] as const),
    ["readCsv without a schema", () => Dataset.readCsv(path, undefined as never)],
    ["a length below 0", () => Dataset.of([{ x: "" }], { text })],
    // As a server gets them.
    ...[null, {}, [null], [1], [{ x: 1 }, null]].map((posted) =>
      [{ posted }, () => rows.encode(posted as never)] as const
    ),
  ], { FOLDER: folder });
});

Deno.test("a value that does not fit is refused with its row and column", () => {
  const good = { x: 1, y: 1, colour: "red", note: "" }, { y: _, ...short } = good;
  const changes = [
    ...["", null, " ", [], "1,5", [5], {}, "1e39", " 0X10"].map((y) => ({ y })),
    ...[{ toString: 1 }, "", " ", null].map((colour) => ({ colour })),
    { note: 3 },
  ];
  const two = Dataset.of([{ x: 1, y: 1 }], { point: { numbers: ["x", "y"] } });
  const fixed = { label: { category: "colour", classes: ["red"] } };
  const dates = [{ colour: new Date(1) }, { colour: new Date(0) }];
  const days = Dataset.of(dates, { label: { category: "colour" } });
  const zero = "1970-01-01T00:00:00.000Z";
  assert.deepEqual(days.classes, { label: [zero, zero.replace("000Z", "001Z")] });
  assert.deepEqual(days.encode([{ colour: zero }]), { label: Int32Array.of(0) });
  return assertRefused("rows", [
    ...changes.map((row) => [row, () => Dataset.of([good, { ...good, ...row }], SCHEMA)] as const),
    ["no y", () => Dataset.of([good, short], SCHEMA)],
    ["no y to encode", () => two.encode([{ x: 1, z: 1 }])],
    ["another class", () => Dataset.of([{ colour: "blue" }], fixed)],
    ["no rows", () => Dataset.of([], SCHEMA)],
    ["a method", () => Dataset.of([{ x: 1 }], { label: { category: "constructor" } })],
  ]);
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
    ["a\rb\r", [["a"], ["b"]]],
    [`1,"${'""'.repeat(5e6)}"\n`, [["1", '"'.repeat(5e6)]]],
  ];
  for (const [text, rows] of cases) assert.deepEqual(parseRows(text, ","), rows, text.slice(0, 20));
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
});

/**
 * A file of pyarrow 25 in two groups of rows: x [1, 3, 5] (INT64), y [-25, 4, 0.5], colour [red, blue,
 * red] and note [hi, "", long], compressed by Zstandard.
 */
const PARQUET = Deno.readFileSync(new URL("../../fixtures/table.parquet", import.meta.url));

/** Another one: image [{ bytes: a grey PNG of 10 and 20 }], as of Hugging Face. */
const IMAGES = Deno.readFileSync(new URL("../../fixtures/images.parquet", import.meta.url));

/** One of parquet-rs 59, by Zstandard: x [null], so it has no key. */
const PARQUET_OF_NULL = Uint8Array.fromBase64([
  "UEFSMRUEFQAVEkwVABUAEgAAKLUv/SAAAQAAFQAVDhUgLBUCFRAVBhUGAAAotS/9IAc5AAACAAAAAgAAGRwWNhVCFgAAABUC",
  "GSxIDGFycm93X3NjaGVtYRUCABUCJQIYAXglHkysEwgRAAAAFgIZHBkcJgAcFQIZNQAGEBkYAXgVDBYCFkwWcCY2JggpLBUA",
  "FRAVAgAVBBUAFQIAABZ4FRQAFkwWAiYIFnAUAAAAaAAAAFBBUjE=",
].join(""));

/** The same bytes with others from a place on, which may be counted from the end. */
function changed(bytes: Uint8Array, at: number, ...values: number[]): Uint8Array {
  const copy = bytes.slice();
  copy.set(values, at < 0 ? copy.length + at : at);
  return copy;
}

folderTest("a Parquet file is a table of its columns; a hostile one is refused", async (folder) => {
  const path = join(folder, "a.parquet");
  const read = async (bytes: Uint8Array, schema: TableSchema = SCHEMA) => {
    await Deno.writeFile(path, bytes);
    return await Dataset.readParquet(path, schema);
  };
  const table = await read(PARQUET);
  assert.deepEqual(table.classes, { label: ["blue", "red"] });
  assert.deepEqual(table.inOrder(3), [{
    point: Float32Array.of(1, -25, 3, 4, 5, 0.5),
    label: Int32Array.of(1, 0, 1),
    words: Int32Array.of(104, 105, -1, -1, -1, -1, 108, 111, 110),
  }]);
  const images = await read(IMAGES, { pixels: { image: "image", size: [1, 1, 2] } });
  assert.deepEqual(images.row(0), { pixels: Float32Array.of(10 / 255, 20 / 255) });
  const find = (...values: number[]) =>
    PARQUET.findIndex((_, at) => values.every((value, i) => PARQUET[at + i] === value));
  // Places of the number of rows, 3, and of the number of values of the first page, 2.
  const rows = find(0x16, 6, 0x19, 0x2c) + 1, values = find(0x2c, 0x15, 4) + 2;
  // The compression of the column x; 14 is LZ4_RAW.
  const codec = find(0x19, 0x18, 1, "x".charCodeAt(0), 0x15) + 5;
  const large = [0xfe, 0xff, 0xff, 0xff, 0x0f], all = [255, 255, 255, 255, 255];
  const longer = Uint8Array.of(...PARQUET.subarray(0, rows), ...large, ...PARQUET.slice(rows + 1));
  const footer = new DataView(longer.buffer), at = longer.length - 8;
  footer.setUint32(at, footer.getUint32(at, true) + large.length - 1, true);
  await assertRefused("parquet", [
    ["nothing", () => read(new Uint8Array())],
    ["a part", () => read(PARQUET.subarray(0, 100))],
    ["no magic at its end", () => read(changed(PARQUET, -1, 0))],
    ["without its first bytes", () => read(PARQUET.subarray(5))],
    ["a footer of 2 GiB", () => read(changed(PARQUET, -8, 255, 255, 255, 127))],
    ["a damaged footer", () => read(changed(PARQUET, PARQUET.length - 300, ...all))],
    ["2 billion rows", () => read(longer)],
    ["more values than rows", () => read(changed(PARQUET, values, 0x7e))],
    ["a large page", () => read(changed(PARQUET, 7, ...large))],
    ["a damaged page", () => read(changed(PARQUET, 7, 4))],
    ["another compression", () => read(changed(PARQUET, codec, 14))],
    ["other rows than named", () => read(changed(PARQUET, rows, 8))],
    ["a column of nothing", () => read(PARQUET_OF_NULL, { z: { numbers: ["x"] } })],
    ["no such column", () => read(PARQUET, { z: { numbers: ["z"] } })],
    ["numbers of text", () => read(PARQUET, { z: { numbers: ["colour"] } })],
  ], { FOLDER: folder });
});

Deno.test("images are moved and flipped by seed, epoch and row, the same after a resume", () => {
  const size = [1, 2, 3] as const, columns = ["a", "b", "c", "d", "e", "f"];
  const rows = [0, 10, 20, 30, 40, 50].map((first) =>
    Object.fromEntries(columns.map((name, i) => [name, first + i + 1]))
  );
  const plain = Dataset.of(rows, { pixels: { numbers: columns } });
  const moved = plain.augment("pixels", { padding: 1, flip: true, size });
  const take = (data: Dataset, from: number, count: number) =>
    Array.from(
      data.batches({ samples: 1, seed: 2 }).from(from).take(count),
      ({ pixels }) => [...pixels as Float32Array],
    );
  const [changed, same] = [take(moved, 0, 60), take(plain, 0, 60)];
  const seen = new Set<string>();
  for (const [i, image] of changed.entries()) {
    const found = [-1, 0, 1].flatMap((down) =>
      [-1, 0, 1].flatMap((right) =>
        [false, true].filter((isFlipped) =>
          image.every((value, at) => {
            const y = Math.floor(at / 3) - down, x = (isFlipped ? 2 - at % 3 : at % 3) - right;
            return value === (y >= 0 && y < 2 && x >= 0 && x < 3 ? same[i]![3 * y + x]! : 0);
          })
        ).map((isFlipped) => `${down} ${right} ${isFlipped}`)
      )
    );
    assert.ok(found.length > 0, `image ${i}: ${image}`);
    seen.add(found[0]!);
  }
  assert.ok(seen.size > 14, `${seen.size} of 18 changes`);
  // Resumed at a row of the sixth epoch.
  assert.deepEqual(take(moved, 31, 20), changed.slice(31, 51));
  assert.deepEqual(moved.inOrder(6), plain.inOrder(6), "not in an evaluation");
  assert.deepEqual(moved.row(1), plain.row(1));
  // The bits are a promise.
  assert.deepEqual(changed.slice(0, 2), [[2, 1, 0, 5, 4, 0], [0, 34, 35, 0, 0, 0]]);
  const other = plain.augment("pixels", { padding: 1, flip: true, size, seed: 2 });
  assert.notDeepEqual(take(other, 0, 6), changed.slice(0, 6));
  const { train } = moved.map(({ pixels }) => ({ pixels: pixels!, copy: pixels! })).split(0.2);
  const { pixels, copy } = train.batches({ samples: 4 }).from(0).next().value!;
  assert.deepEqual(pixels, copy);
  const channels = plain.augment("pixels", { padding: 1, size: [2, 1, 3] });
  for (const [a, b, c, d, e, f] of take(channels, 0, 20)) {
    assert.deepEqual([a, b, c].map((one) => one === 0), [d, e, f].map((one) => one === 0));
  }
  return assertRefused("augmented", [
    ["other", () => plain.augment("other", { size })],
    ...[{}, { size: [3, 2, 3] }, { size, padding: -1 }, { size, seed: 0.5 }].map((options) =>
      [options, () => plain.augment("pixels", options as { size: typeof size })] as const
    ),
  ]);
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

/** Of a picture; rows of bytes are each behind the type of its filter, by default 0. */
interface PngParts {
  readonly size: readonly [colourType: number, width: number, height: number];
  readonly depth?: number;
  readonly interlace?: number;
  readonly rows: Uint8Array;
  readonly more?: readonly Uint8Array[];
}

function png({ size, depth = 8, interlace = 0, rows, more = [] }: PngParts) {
  const [colourType, width, height] = size;
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
  size: [2, 3, 2],
  rows: Uint8Array.of(0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 2, 0, 51, 0, 0, 0, 51, 51, 0, 0),
});
const COLOUR_VALUES = [...[255, 0, 0, 255, 0, 51, 0, 255, 0, 51, 255, 0, 0, 0, 255, 0, 51, 255]];
/** Its transparent shade, 20, is one as any other. */
const GREY = png({
  ...{ size: [0, 3, 2], more: [pngChunk("tRNS", Uint8Array.of(0, 20))] },
  rows: Uint8Array.of(0, 10, 20, 30, 0, 40, 50, 60),
});

const near = (found: ArrayLike<number>, wanted: readonly number[], off = 1e-6) =>
  assert.ok(farthest(found, wanted) <= off, `${found}`);

folderTest("images in folders have their folder's class, a size and a scale", async (folder) => {
  const put = async (path: string, bytes: Uint8Array) => {
    await Deno.mkdir(join(folder, path, ".."), { recursive: true });
    await Deno.writeFile(join(folder, path), bytes);
  };
  const palette = png({
    ...{ size: [3, 3, 2], depth: 4, rows: Uint8Array.of(0, 1, 0, 0, 0, 16) },
    more: [pngChunk("PLTE", Uint8Array.of(1, 2, 3, 4, 5, 6))],
  });
  await put("dog/b.png", GREY);
  await put("cat/2.png", COLOURS);
  await put("cat/10.png", palette);
  await put("dog/.hidden", Uint8Array.of(1));
  await put("read.me", Uint8Array.of(1));
  const pixelsOf = { image: "file", size: [3, 2, 3] } as const;
  const schema = { pixels: pixelsOf, label: { category: "folder" } } as const;
  const images = await Dataset.readImages(folder, schema);
  assert.deepEqual(images.classes, { label: ["cat", "dog"] });
  assert.deepEqual(images.batches({ samples: 1 }).sizes, { pixels: 18, label: 2 });
  const [first, second, third] = images.inOrder(1).map(({ pixels, label }) => [
    ...[Array.from(pixels as Float32Array, (value) => Math.round(255 * value)), label![0]],
  ]);
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
  // A JPEG whose red, green and blue are the brightness and the colours of another, with no colour.
  const { encode } = await jpegJs(), plain = new Uint8Array(256).fill(50);
  const jpeg: Uint8Array = encode({ width: 8, height: 8, data: plain }, 90).data.subarray(20);
  const adobe = [0xff, 0xd8, 0xff, 0xee, 0, 14, ...new TextEncoder().encode("Adobe"), 0, 100, 0];
  const file = Uint8Array.of(...adobe, 0, 0, 0, 0, ...jpeg);
  const { pixels: rgb } = Dataset.of([{ file }], { pixels: { image: "file", size: [3, 8, 8] } })
    .row(0);
  const wanted = [50, 128, 128].flatMap((value) => Array(64).fill(value / 255));
  near(rgb as Float32Array, wanted, 2 / 255);
  // 35 pixels, as a number of millions, are less than 35.
  const odd = encode({ width: 7, height: 5, data: plain }, 90).data;
  const { sizes } = Dataset.of([{ file: odd }], { pixels: { image: "file", size: [3, 5, 7] } })
    .batches({ samples: 1 });
  assert.deepEqual(sizes, { pixels: 105 });
  await put("dog/inner/a.png", GREY);
  await assertRefused("image_folders", [
    ["a folder in a folder", () => Dataset.readImages(folder, schema)],
  ], { FOLDER: folder });
});

folderTest("damaged and hostile images are refused by name before decoding", async (folder) => {
  const { encode } = await jpegJs(), data = new Uint8Array(4 * 64 * 64).map((_, i) => i / 80);
  const jpeg = new Uint8Array(encode({ width: 64, height: 64, data }, 90).data);
  const jpegSchema = { pixels: { image: "file", size: [3, 64, 64] } } as const;
  await Deno.mkdir(join(folder, "a"));
  await Deno.writeFile(join(folder, "a/1.jpg"), jpeg);
  const { pixels } = (await Dataset.readImages(folder, jpegSchema)).row(0);
  // The encoder loses little of its input.
  const off = Array.from(pixels as Float32Array, (value, i) => {
    const [channel, pixel] = [Math.floor(i / 4096), i % 4096];
    return Math.abs(255 * value - data[4 * pixel + channel]!);
  });
  assert.ok(off.reduce((sum, one) => sum + one) / off.length < 3);
  const small = [3, 2, 3] as const, { size } = jpegSchema.pixels;
  const frame = jpeg.findIndex((_, i) => jpeg[i] === 0xff && jpeg[i + 1] === 0xc0);
  const rows = new Uint8Array(9),
    bomb = { size: [2, 3, 2], rows: new Uint8Array(1_000_000) } as const;
  const cases: [string, bytes: Uint8Array, size: readonly [number, number, number]][] = [
    ["no image", new TextEncoder().encode("GIF89a, not an image at all, and long"), small],
    ["nothing", new Uint8Array(), small],
    ["a part", COLOURS.subarray(0, 40), small],
    ["without its end", COLOURS.subarray(0, -13), small],
    ["changed", changed(COLOURS, 45, 1, 2, 3), small],
    ["two headers", Uint8Array.of(...COLOURS.slice(0, 33), ...COLOURS.slice(8)), small],
    ["fewer rows", png({ size: [2, 3, 2], rows }), small],
    ["more rows", png(bomb), small],
    ["large", png({ size: [2, 100_000, 100_000], rows }), small],
    ["interlaced", png({ ...bomb, interlace: 1 }), small],
    ["grey, in colour and turned", GREY, [3, 3, 2]],
    ["in colour, as grey", COLOURS, [1, 2, 3]],
    ["with transparency", COLOURS, [4, 2, 3]],
    ["the start of a JPEG", jpeg.subarray(0, 300), size],
    ["half of a JPEG", jpeg.subarray(0, jpeg.length / 2), size],
    ["a large JPEG", changed(jpeg, frame + 5, 255, 255, 255, 255), size],
    ["a changed JPEG", changed(jpeg, 4, 0, 0), size],
  ];
  const read = async (bytes: Uint8Array, size: readonly [number, number, number]) => {
    await Deno.writeFile(join(folder, "a/1.jpg"), bytes);
    return await Dataset.readImages(folder, { pixels: { image: "file", size } });
  };
  const refused = cases.map(([what, ...image]) => [what, () => read(...image)] as const);
  await assertRefused("images", refused, { FOLDER: folder });
});
