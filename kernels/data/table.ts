/**
 * Tables of samples: CSV, TSV, JSON lines, Parquet and images in folders, with a schema.
 *
 * CSV has the form of RFC 4180. No library reads it, because users must link each library of JSR in
 * their configuration. `hyparquet` reads Parquet; it is fetched when such a file is first read.
 *
 * @module
 */

import type { ZlibOptions } from "node:zlib";
import { builtin } from "../builtin.ts";
import { assertInput, checkOptionNames, checkPositive, nameError, refusal } from "../errors.ts";
import { checkInputFile, damageOf, decodeText, TEXT_BYTES_MAX } from "./files.ts";
import { pinnedPackage } from "./npm_packages.ts";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import type { Batch } from "../batch.ts";
import { elementCount } from "../graph/shapes.ts";
import { substream } from "../random.ts";
import {
  checkScale,
  decodeImage,
  imagesIn,
  moveImage,
  openDecoders,
  scaleImages,
} from "./images.ts";
import { checkSchema, columnsOf, type TableSchema } from "./table_schema.ts";
import { batchRows, shuffledOrder } from "./token_batches.ts";

const { brotliDecompressSync, gunzipSync, zstdDecompressSync } = builtin("node:zlib");

const HYPARQUET = {
  name: "hyparquet",
  version: "1.33.0",
  megabytes: 1,
  file: "src/constants.js",
  folder: "",
  files: /\.js$/,
  sha256: "919a553fb8396be84a511d9e5f165bc8546c8cdd67a6c130bd5e953764193b47",
};

/** A file with random access. */
interface RandomAccess {
  readonly byteLength: number;
  readonly slice: (start: number, end?: number) => ArrayBuffer;
}

/** A column of a group of rows. */
interface ColumnChunk {
  readonly path_in_schema: readonly string[];
  readonly data_page_offset: bigint;
  readonly dictionary_page_offset?: bigint;
  readonly total_compressed_size: bigint;
  readonly codec: string;
}

interface Metadata {
  readonly num_rows: bigint;
  readonly row_groups: readonly {
    readonly num_rows: bigint;
    readonly columns: readonly { readonly meta_data?: ColumnChunk }[];
  }[];
}

interface PageHeader {
  readonly uncompressed_page_size: number;
  readonly compressed_page_size: number;
  readonly data_page_header?: { readonly num_values: number };
  readonly data_page_header_v2?: { readonly num_values: number };
  readonly dictionary_page_header?: { readonly num_values: number };
}

/** The functions of hyparquet in use; it is imported by address and so without its types. */
interface Hyparquet {
  parquetMetadataAsync(file: RandomAccess): Promise<Metadata>;
  parquetReadObjects(options: object): Promise<Record<string, unknown>[]>;
  parquetHeader(reader: { view: DataView; offset: number }): PageHeader;
}

async function openHyparquet(): Promise<Hyparquet> {
  const { folder } = await pinnedPackage(HYPARQUET);
  const load = async (module: string) => await import(new URL(module, folder).href);
  return { ...await load("index.js"), ...await load("column.js") };
}

/** Rows that any file may have; others have at most one in each bit. */
const ROWS_MAX = 1_000_000;

/** Bytes of a page, unpacked. */
const PAGE_MAX = 2 ** 28;

/** Bytes of all columns that are read, unpacked. */
const UNPACKED_MAX = 2 ** 31;

type Unpack = (bytes: Uint8Array, options: ZlibOptions) => Uint8Array;

const unpackWith = (unpack: Unpack) => (bytes: Uint8Array, maxOutputLength: number) =>
  // An empty page, such as the keys of a column without values, has a limit above 0 too.
  unpack(bytes, { maxOutputLength: maxOutputLength || 1 });

const COMPRESSORS = {
  GZIP: unpackWith(gunzipSync),
  BROTLI: unpackWith(brotliDecompressSync),
  ZSTD: unpackWith(zstdDecompressSync),
};

/** Compressions of Parquet files that can be read. */
const CODECS: readonly string[] = ["UNCOMPRESSED", "SNAPPY", ...Object.keys(COMPRESSORS)];

/**
 * Reads columns of a Parquet file.
 *
 * @param utf8 reads bytes as texts also where the file does not call them so, as older ones.
 * @throws {Error} when a column is missing or has lists, or the file is damaged; it names the file.
 */
async function parquetRows(
  path: string,
  columns: readonly string[],
  utf8: boolean,
): Promise<Record<string, unknown>[]> {
  const { parquetHeader, parquetMetadataAsync, parquetReadObjects } = await openHyparquet();
  checkInputFile(path);
  using opened = Deno.openSync(path);
  const byteLength = opened.statSync().size;
  const slice = (start: number, end = byteLength) => {
    const isInside = start >= 0 && start <= end && end <= byteLength;
    assertInput(isInside, "read a part", `it must be in ${byteLength} bytes`, `${start} to ${end}`);
    const bytes = new Uint8Array(end - start);
    opened.seekSync(start, Deno.SeekMode.Start);
    for (let at = 0, count; at < bytes.length; at += count) {
      count = opened.readSync(bytes.subarray(at)) ?? 0;
      assertInput(count > 0, "read a part", "the file must keep its size", "its end");
    }
    return bytes.buffer;
  };
  const file = { byteLength, slice }, isLong = byteLength >= 12;
  const isParquet = isLong && new TextDecoder().decode(slice(byteLength - 4)) === "PAR1";
  assertInput(isParquet, `read ${path}`, "it must be a Parquet file", `${byteLength} bytes`);
  try {
    const metadata = await parquetMetadataAsync(file), rows = Number(metadata.num_rows);
    const most = Math.max(ROWS_MAX, 8 * byteLength);
    assertInput(rows <= most, "read rows", `there must be at most ${most}`, rows);
    let unpacked = 0, left = rows;
    for (const group of metadata.row_groups) {
      left -= Number(group.num_rows);
      const chunks = group.columns.flatMap(({ meta_data: chunk }) => chunk ?? []);
      const there = new Set(chunks.map(({ path_in_schema: [name] }) => name!));
      const missing = columns.filter((column) => !there.has(column));
      const must = `the columns must include ${missing}`;
      assertInput(missing.length === 0, "read rows", must, [...there].slice(0, 99).join(", "));
      for (const chunk of chunks.filter(({ path_in_schema: [name] }) => columns.includes(name!))) {
        const { codec } = chunk, isKnown = CODECS.includes(codec);
        assertInput(isKnown, "read rows", `its compression must be one of ${CODECS}`, codec);
        const { values, bytes } = countValues(chunk, file, parquetHeader);
        unpacked += bytes;
        const most = `the columns must have at most ${UNPACKED_MAX} bytes when unpacked`;
        assertInput(unpacked <= UNPACKED_MAX, "read rows", most, unpacked);
        const wanted = Number(group.num_rows);
        const one = `the column ${chunk.path_in_schema.join(".")} must have a value of each row`;
        assertInput(values === wanted, "read rows", one, `${values} of ${wanted}`);
      }
    }
    assertInput(left === 0, "read rows", `its groups must have its ${rows} rows`, rows - left);
    return await parquetReadObjects({ file, metadata, columns, utf8, compressors: COMPRESSORS });
  } catch (cause) {
    if (/^Cannot .* must /.test((cause as Error).message)) {
      throw nameError(`Cannot read ${path}`, cause);
    }
    throw refusal(`read ${path}`, "it must be an undamaged Parquet file", damageOf(cause));
  }
}

/**
 * Counts the values of a column, and their unpacked bytes, from the headers of its pages, before any
 * memory is taken for them.
 */
function countValues(
  chunk: ColumnChunk,
  { slice }: RandomAccess,
  parquetHeader: Hyparquet["parquetHeader"],
) {
  const { data_page_offset: data, dictionary_page_offset: dictionary, ...sizes } = chunk;
  const start = Number(dictionary || data), end = start + Number(sizes.total_compressed_size);
  const reader = { view: new DataView(slice(start, end)), offset: 0 };
  let values = 0, bytes = 0;
  while (reader.offset < reader.view.byteLength - 1) {
    const page = parquetHeader(reader), unpacked = page.uncompressed_page_size;
    bytes += unpacked;
    const { num_values: keys = 0 } = page.dictionary_page_header ?? {};
    const isPage = page.compressed_page_size >= 0 && unpacked >= 0 && unpacked <= PAGE_MAX;
    const must = `a page must have at most ${PAGE_MAX} bytes, and a key in each`;
    assertInput(isPage && keys <= unpacked, "read rows", must, `${unpacked} bytes, ${keys} keys`);
    values += (page.data_page_header ?? page.data_page_header_v2)?.num_values ?? 0;
    reader.offset += page.compressed_page_size;
  }
  return { values, bytes };
}

const { dirname, isAbsolute, join } = builtin("node:path");

/** Returns the fields of a sample, changed at random if they are of an epoch. */
type ReadRow = (row: number, epoch?: number) => Batch;

/** A row of a table: its values by column, as texts or as JSON has them. */
type TableRow = Readonly<Record<string, unknown>>;

/**
 * Samples with random access. All orders and parts are functions of a seed, so a resumed run gets
 * the same samples.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { Dataset } from "@troupe/troupe/kernels";
 *
 * const schema = { point: { numbers: ["x", "y"] }, label: { category: "colour" } };
 * const rows = [{ x: 1, y: 2, colour: "red" }, { x: 3, y: 4, colour: "blue" }];
 * const dataset = Dataset.of(rows, schema);
 * assert.deepEqual(dataset.classes, { label: ["blue", "red"] });
 * assert.deepEqual(dataset.row(0), { point: Float32Array.of(1, 2), label: Int32Array.of(1) });
 * const { samples, length, sizes } = dataset.batches({ samples: 1 });
 * assert.deepEqual([samples, length, sizes], [1, 2, { point: 2, label: 2 }]);
 * assert.deepEqual(dataset.encode([{ x: 5, y: 6 }]), { point: Float32Array.of(5, 6) });
 * ```
 */
export class Dataset {
  /** Number of samples. */
  readonly length: number;
  /** Names of the classes of each field that is a category. */
  readonly classes: Readonly<Record<string, readonly string[]>>;

  private constructor(
    length: number,
    private readonly schema: TableSchema,
    classes: Dataset["classes"],
    private readonly read: ReadRow,
  ) {
    this.length = length;
    this.classes = classes;
  }

  /**
   * Makes a dataset of rows.
   *
   * Images need one of the functions that read files first, which open their decoders.
   *
   * @throws {RangeError} when there is no row, or a value does not fit its field; it names the row.
   */
  static of(rows: readonly Readonly<Record<string, unknown>>[], schema: TableSchema): Dataset {
    checkSchema(schema);
    const isList = Array.isArray(rows), received = typeof rows;
    assertInput(isList, "read a table", "its rows must be a list", received, TypeError);
    assertInput(rows.length > 0, "read a table", "it must have a row at least", "none");
    const classes = Object.fromEntries(
      Object.entries(schema).flatMap(([name, field]) =>
        "category" in field ? [[name, field.classes ?? classesIn(rows, field.category)]] : []
      ),
    );
    for (const field of Object.values(schema)) {
      if ("image" in field) checkScale(field);
      if ("text" in field) checkPositive("read a table", { length: field.length });
    }
    const encode = (row: TableRow, i: number) => encodeRow(row, schema, classes, `row ${i + 1}`);
    const { length } = rows, columns = Object.entries(joinRows(length, rows.values().map(encode)));
    const read = (row: number) => {
      const own = columns.map(([name, all]) => {
        const size = all.length / length;
        return [name, all.subarray(row * size, (row + 1) * size)] as const;
      });
      return scaled(Object.fromEntries(own), schema);
    };
    return new Dataset(length, schema, classes, read);
  }

  /**
   * Reads a CSV file, whose first line has the names of the columns; a TSV file if the name ends in
   * `.tsv`.
   *
   * @throws {RangeError} when a row has another number of values, or a value does not fit its field.
   */
  static async readCsv(path: string, schema: TableSchema): Promise<Dataset> {
    checkSchema(schema);
    const separator = path.endsWith(".tsv") ? "\t" : ",";
    const [names, ...rows] = parseRows(await readText(path), separator, path);
    assertInput(names !== undefined, `read ${path}`, "it must have a line of names", "none");
    const wanted = new Set(Object.values(schema).flatMap(columnsOf));
    const last = new Map(names!.map((name, i) => [name, i]));
    const twice = names!.find((name, i) => last.get(name) !== i && wanted.has(name));
    const must = "the names of columns must differ";
    assertInput(twice === undefined, `read ${path}`, must, `${JSON.stringify(twice)} twice`);
    const named = rows.map((values, i) => {
      const must = `row ${i + 1} must have ${names!.length} values`;
      assertInput(values.length === names!.length, `read ${path}`, must, values.length);
      return Object.fromEntries(values.map((value, column) => [names![column]!, value]));
    });
    return await Dataset.#below(dirname(path), named, schema);
  }

  /** Reads a file of JSON lines, each an object. */
  static async readJsonLines(path: string, schema: TableSchema): Promise<Dataset> {
    const rows = (await readText(path)).split("\n").flatMap((line, i) => {
      if (line.trim() === "") return [];
      const must = `line ${i + 1} must be an object of JSON`;
      try {
        const row: unknown = JSON.parse(line, LONG_NUMBER.test(line) ? wholeNumber : undefined);
        if (typeof row === "object" && row !== null && !Array.isArray(row)) {
          return [row as TableRow];
        }
      } catch (cause) {
        throw refusal(`read ${path}`, must, cause, SyntaxError);
      }
      throw refusal(`read ${path}`, must, line.slice(0, 80), SyntaxError);
    });
    return await Dataset.#below(dirname(path), rows, schema);
  }

  /**
   * Reads the columns of the schema in a Parquet file.
   *
   * @throws {Error} when a column is missing, the file is damaged, or a value does not fit its field.
   */
  static async readParquet(path: string, schema: TableSchema): Promise<Dataset> {
    checkSchema(schema);
    const columns = [...new Set(Object.values(schema).flatMap(columnsOf))];
    const hasImages = Object.values(schema).some((field) => "image" in field);
    const rows = await parquetRows(path, columns, !hasImages);
    return await Dataset.#below(dirname(path), rows, schema);
  }

  /**
   * Reads PNG and JPEG files in the sub-folders of a folder: rows have the columns `file`, the path,
   * and `folder`, the name of the sub-folder. Both are sorted by name.
   *
   * @throws {RangeError} when a file is damaged, or of another size; it names the file.
   */
  static async readImages(folder: string, schema: TableSchema): Promise<Dataset> {
    return await Dataset.#below(".", imagesIn(folder), schema);
  }

  /** Makes a dataset of rows whose paths of images are below a folder. */
  static async #below(folder: string, rows: readonly TableRow[], schema: TableSchema) {
    checkSchema(schema);
    const images = Object.values(schema).flatMap((field) => "image" in field ? [field.image] : []);
    if (images.length === 0) return Dataset.of(rows, schema);
    await openDecoders();
    const found = rows.map((row) => {
      const paths = images.filter((column) => typeof row[column] === "string");
      const resolve = (path: string) => isAbsolute(path) ? path : join(folder, path);
      const resolved = paths.map((column) => [column, resolve(row[column] as string)]);
      return { ...row, ...Object.fromEntries(resolved) };
    });
    return Dataset.of(found, schema);
  }

  /** Returns the fields of a sample. */
  row(number: number): Batch {
    const isRow = Number.isSafeInteger(number) && number >= 0 && number < this.length;
    const must = `its number must be a whole number from 0 to ${this.length - 1}`;
    assertInput(isRow, "read a row", must, number);
    return this.read(number);
  }

  /**
   * Returns the same samples, changed by a function of their fields and number. {@linkcode Dataset.encode} does
   * not change its rows.
   */
  map(change: (row: Batch, number: number) => Batch): Dataset {
    return this.#reading((row, epoch) => {
      const fields = change(this.read(row, epoch), row), all = Object.values(Object(fields));
      const isBatch = all.length > 0 && all.every(ArrayBuffer.isView);
      const must = "the function must return a record of typed arrays", found = typeof fields;
      assertInput(isBatch, `change row ${row}`, must, found, TypeError);
      return fields;
    });
  }

  /** Returns a dataset of the same form, whose samples are read by another function. */
  #reading(read: ReadRow, length: number = this.length): Dataset {
    return new Dataset(length, this.schema, this.classes, read);
  }

  /**
   * Returns the same samples, whose images are moved and flipped at random in the micro-batches of
   * {@linkcode Dataset.batches}, and as they are elsewhere. The draws are a function of the seed, the epoch and
   * the number of the sample, so fields that are changed by one seed are moved alike.
   *
   * @param options `padding`: most pixels that an image is moved by in each direction, with zeros beside
   * it. Default 0. `flip`: flips half of them left to right. `size`: channels, height and width of a
   * field that is no image in the schema.
   */
  augment(
    field: string,
    { padding = 0, flip = false, seed = 1, size, ...others }: {
      readonly padding?: number;
      readonly flip?: boolean;
      readonly seed?: number;
      readonly size?: readonly [channels: number, height: number, width: number];
    },
  ): Dataset {
    const cannot = `augment ${field}`, of = this.schema[field];
    const known = size ?? (of && "image" in of ? of.size : undefined);
    checkOptionNames(cannot, others, "padding, flip, seed, size");
    const isPadding = Number.isSafeInteger(padding) && padding >= 0 && padding < 2 ** 16;
    assertInput(isPadding, cannot, "padding must be a whole number from 0", padding);
    assertInput(Number.isSafeInteger(seed), cannot, "the seed must be an integer", seed);
    const found = this.read(0)[field]?.length;
    const fits = known !== undefined && elementCount(known) === found;
    assertInput(fits, cannot, "it must have an image of `size`", `${known} and ${found} values`);
    return this.#reading((row, epoch) => {
      const sample = this.read(row, epoch);
      if (epoch === undefined) return sample;
      const random = substream(seed, `augment ${epoch} ${row}`);
      const [down, right] = [0, 1].map(() => uniformInt(random, -padding, padding));
      const isFlipped = uniformInt(random, 0, 1) === 1 && flip;
      const move = { down: down!, right: right!, isFlipped };
      return { ...sample, [field]: moveImage(sample[field]!, known!, move) };
    });
  }

  /**
   * Splits the samples into two parts at random, by a seed.
   *
   * @param share of the samples for validation. Default 0.1; each part has at least one.
   */
  split(share = 0.1, seed = 1): { readonly train: Dataset; readonly validation: Dataset } {
    const { length } = this, isShare = typeof share === "number" && share > 0 && share < 1;
    assertInput(length >= 2, "split a dataset", "it must have at least two rows", length);
    const must = "the share must be a number above 0 and below 1";
    assertInput(isShare, "split a dataset", must, share);
    const order = shuffledOrder(length, seed);
    const count = Math.min(length - 1, Math.max(1, Math.round(share * length)));
    const part = (from: number, size: number) =>
      this.#reading((row, epoch) => this.read(order(from + row), epoch), size);
    return { validation: part(0, count), train: part(count, length - count) };
  }

  /**
   * Returns the micro-batches of `train()`: without end, each epoch in another order, which is a
   * function of the seed and the epoch.
   */
  batches({ samples, seed = 1, ...others }: { samples: number; seed?: number }): {
    /** Yields the micro-batches from a number on, without end. */
    from(microBatch: number): Generator<Batch, void>;
    /** Samples of a micro-batch. */
    readonly samples: number;
    /** Micro-batches of an epoch; the last may be a part, which the next epoch completes. */
    readonly length: number;
    /** Numbers of a field, or its classes, by field. */
    readonly sizes: Readonly<Record<string, number>>;
    /** Names of the classes of each field that is a category. */
    readonly classes: Readonly<Record<string, readonly string[]>>;
  } {
    checkPositive("make micro-batches", { samples });
    checkOptionNames("make micro-batches", others, "samples, seed");
    const order = shuffledOrder(this.length, seed);
    const rows = batchRows(Infinity, { microBatch: samples, microBatches: 1 });
    const read = (row: number) => this.read(order(row), Math.floor(row / this.length));
    const sizes = Object.entries(this.read(0)).map(([name, { length }]) =>
      [name, this.classes[name]?.length ?? length] as const
    );
    return {
      *from(microBatch) {
        for (const numbers of rows.from(microBatch)) yield joinRows(samples, numbers.map(read));
      },
      samples,
      length: this.length / samples,
      sizes: Object.fromEntries(sizes),
      classes: this.classes,
    };
  }

  /** Returns the samples in order, in whole micro-batches, for `evaluation.batches`. */
  inOrder(samples: number): Batch[] {
    checkPositive("make micro-batches", { samples });
    const must = `samples must be at most its ${this.length} rows`;
    assertInput(samples <= this.length, "make micro-batches", must, samples);
    const rows = batchRows(this.length, { microBatch: samples, microBatches: 1 });
    return Array.from(rows, (own) => joinRows(samples, own.map((row) => this.read(row))));
  }

  /**
   * Encodes new rows as one micro-batch, such as the input of a prediction. Fields without any of
   * their columns in the first row are left out.
   *
   * @throws {RangeError} when a value of a field is missing or does not fit.
   */
  encode(rows: readonly Readonly<Record<string, unknown>>[]): Batch {
    const received = typeof rows;
    assertInput(Array.isArray(rows), "encode rows", "they must be a list", received, TypeError);
    const known = Object.entries(this.schema)
      .filter(([, field]) => columnsOf(field).some((column) => column in Object(rows[0])));
    const schema = Object.fromEntries(known);
    const all = rows.map((row, i) => encodeRow(row, schema, this.classes, `row ${i + 1}`));
    return scaled(joinRows(all.length, all), schema);
  }
}

const LONG_NUMBER = /(?<![.\d])\d{16}/;

/** Keeps a whole number of JSON that no number has, so that two of them are two classes. */
const wholeNumber = (_: string, value: unknown, { source = "" }: { source?: string } = {}) =>
  /^-?\d+$/.test(source) && !Number.isSafeInteger(value) ? BigInt(source) : value;

/** Reads a text in UTF-8, without the mark of its byte order. */
async function readText(path: string): Promise<string> {
  checkInputFile(path, TEXT_BYTES_MAX);
  return decodeText(await Deno.readFile(path), path).replace(/^\ufeff/, "");
}

/** Returns fields with images as numbers that models read. */
const scaled = (fields: Batch, schema: TableSchema): Batch =>
  Object.fromEntries(
    Object.entries(fields).map(([name, values]) => {
      const field = schema[name]!;
      return [name, "image" in field ? scaleImages(values as Uint8Array, field) : values];
    }),
  );

/** Returns whether a value is an object, a list or a method, which is no value of a cell. */
const isNested = (value: unknown): boolean => Object(value) === value && !(value instanceof Date);

/** Returns whether a cell has no value; such a cell is no category either. */
const isEmpty = (value: unknown): boolean => String(value ?? "").trim() === "";

/** Returns the name of a class. A date has that of ISO 8601, which is the same in every time zone. */
const classOf = (value: unknown): string => String(value instanceof Date ? value.toJSON() : value);

const classesIn = (rows: readonly TableRow[], column: string) => {
  const cells = rows.map((row) => row?.[column]);
  const values = cells.filter((value) => !isNested(value) && !isEmpty(value));
  return [...new Set(values.map(classOf))].sort();
};

/** Describes a cell that does not fit. */
function shownCell(row: TableRow, column: string): string {
  const value = row[column];
  if (isNested(value)) return "an object or a list";
  if (value === undefined) {
    return `no such column; the columns are ${Object.keys(row).slice(0, 9).join(", ")}`;
  }
  return isEmpty(value) ? "an empty cell" : JSON.stringify(String(value).slice(0, 99));
}

/** The number of each class, by the list of all. */
const numbered = new WeakMap<readonly string[], ReadonlyMap<string, number>>();

function encodeRow(
  row: TableRow,
  schema: TableSchema,
  classes: Dataset["classes"],
  where: string,
): Batch {
  const isRow = typeof row === "object" && row !== null;
  assertInput(isRow, "read a table", `${where} must be an object`, row, TypeError);
  const valueOf = (column: string, must: string, isValid: (value: unknown) => boolean) => {
    const value = row[column];
    if (value !== undefined && !isNested(value) && isValid(value)) return value;
    const name = `${must} in the column ${JSON.stringify(column)} of ${where}`;
    throw refusal("read a table", name, shownCell(row, column));
  };
  const fields = Object.entries(schema).map(([name, field]) => {
    if ("numbers" in field) {
      const isNumber = (value: unknown) =>
        !isEmpty(value) && !/^\s*0[box]/i.test(String(value)) &&
        Number.isFinite(Math.fround(Number(value)));
      const numbers = field.numbers.map((column) =>
        Number(valueOf(column, "there must be a number", isNumber))
      );
      return [name, Float32Array.from(numbers)] as const;
    }
    if ("category" in field) {
      const known = classes[name]!, count = () => new Map(known.map((name, i) => [name, i]));
      const numbers = numbered.getOrInsertComputed(known, count);
      const wanted = known.length ? `one of ${known.slice(0, 9).join(", ")}` : "a class";
      const must = `there must be ${wanted}`;
      const isKnown = (value: unknown) => numbers.has(classOf(value));
      return [name, Int32Array.of(numbers.get(classOf(valueOf(field.category, must, isKnown)))!)];
    }
    if ("image" in field) return [name, decodeImage(row[field.image], field, where)];
    const text = valueOf(field.text, "there must be a text", (value) => typeof value === "string");
    const ids = new Int32Array(field.length).fill(-1);
    const found = field.encode(text as string), first = Array.from(found).slice(0, field.length);
    const isIds = "length" in Object(found) && first.every(Number.isSafeInteger);
    const must = `encode must return whole numbers for ${where}`;
    const received = isIds || first.length ? first : typeof found;
    assertInput(isIds, `read the field ${name}`, must, received);
    ids.set(first);
    return [name, ids] as const;
  });
  return Object.fromEntries(fields);
}

/** Joins the fields of a number of samples, in order. */
function joinRows(samples: number, rows: Iterable<Batch>): Batch {
  assertInput(samples > 0, "make a micro-batch", "it must have a sample", "none");
  const joined: Record<string, Float32Array> = {};
  let first: Batch | undefined, at = 0;
  for (const row of rows) {
    first ??= row;
    for (const [name, { length, constructor }] of Object.entries(first)) {
      const { length: count = 0, constructor: Kind } = Object(row[name]) as Float32Array;
      const must = `the field ${name} must have ${length} values of one type in each sample`;
      const fits = count === length && Kind === constructor;
      assertInput(fits, "make a micro-batch", must, row[name] && `${Kind.name} of ${count}`);
      joined[name] ??= new (constructor as Float32ArrayConstructor)(samples * length);
      joined[name].set(row[name] as Float32Array, at * length);
    }
    at++;
  }
  return joined;
}

/**
 * Splits CSV into rows of values (RFC 4180). Values may be quoted; empty lines are left out.
 *
 * @throws {SyntaxError} when a quoted value does not end, or text follows it.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const rows = parseRows('\ufeffa,b\r\n"x, ""y""",2\n\n', ",");
 * assert.deepEqual(rows, [["a", "b"], ['x, "y"', "2"]]);
 * assert.throws(() => parseRows('a\n"x', ","), /line 2 must end/);
 * ```
 */
export function parseRows(text: string, separator: string, path = "CSV"): string[][] {
  const plain = new RegExp(`[^\\r\\n${separator}]*`, "y");
  const ending = new RegExp(`${separator}|\\r\\n?|\\n|$`, "y");
  const rows: string[][] = [];
  let row: string[] = [], at = text.startsWith("\ufeff") ? 1 : 0;
  while (at < text.length) {
    const isQuoted = text[at] === '"', close = isQuoted ? closingQuote(text, at) : at;
    plain.lastIndex = at;
    plain.test(text);
    ending.lastIndex = isQuoted ? close + 1 : plain.lastIndex;
    const found = close < 0 ? null : ending.exec(text);
    if (!found) {
      const line = text.slice(0, at).split("\n").length;
      const must = `the quoted value in line ${line} must end before the next value`;
      throw refusal(`read ${path}`, must, JSON.stringify(text.slice(at, at + 40)), SyntaxError);
    }
    const [end] = found;
    row.push(
      isQuoted ? text.slice(at + 1, close).replaceAll('""', '"') : text.slice(at, found.index),
    );
    at = found.index + end.length;
    if (end === separator && at < text.length) continue;
    if (end === separator) row.push("");
    if (row.length > 1 || row[0] !== "" || isQuoted) rows.push(row);
    row = [];
  }
  return rows;
}

/** Returns the place of the quote that ends the value at `at`; -1 if there is none. */
function closingQuote(text: string, at: number): number {
  let place = text.indexOf('"', at + 1);
  while (place >= 0 && text[place + 1] === '"') place = text.indexOf('"', place + 2);
  return place;
}
