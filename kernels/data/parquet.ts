/**
 * Rows of Parquet files, by `hyparquet`, which is fetched when such a file is first read.
 *
 * @module
 */

import type { ZlibOptions } from "node:zlib";
import { builtin } from "../builtin.ts";
import { assertInput, nameError, refusal } from "../errors.ts";
import { checkInputFile } from "./files.ts";
import { pinnedPackage } from "./npm_packages.ts";

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

type Unpack = (bytes: Uint8Array, options: ZlibOptions) => Uint8Array;

const unpackWith = (unpack: Unpack) => (bytes: Uint8Array, maxOutputLength: number) =>
  unpack(bytes, { maxOutputLength });

const COMPRESSORS = {
  GZIP: unpackWith(gunzipSync),
  BROTLI: unpackWith(brotliDecompressSync),
  ZSTD: unpackWith(zstdDecompressSync),
};

/**
 * Reads columns of a Parquet file.
 *
 * @throws {Error} when a column is missing or has lists, or the file is damaged; it names the file.
 */
export async function parquetRows(
  path: string,
  columns: readonly string[],
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
    for (const group of metadata.row_groups) {
      const chunks = group.columns.flatMap(({ meta_data: chunk }) => chunk ?? []);
      const there = new Set(chunks.map(({ path_in_schema: [name] }) => name!));
      const missing = columns.filter((column) => !there.has(column));
      const must = `the columns must include ${missing}`;
      assertInput(missing.length === 0, "read rows", must, [...there].slice(0, 99).join(", "));
      for (const chunk of chunks.filter(({ path_in_schema: [name] }) => columns.includes(name!))) {
        const values = countValues(chunk, file, parquetHeader), wanted = Number(group.num_rows);
        const one = `the column ${chunk.path_in_schema.join(".")} must have a value of each row`;
        assertInput(values === wanted, "read rows", one, `${values} of ${wanted}`);
      }
    }
    return await parquetReadObjects({ file, metadata, columns, compressors: COMPRESSORS });
  } catch (cause) {
    const { message } = cause as Error;
    if (/^Cannot .* must /.test(message)) throw nameError(`Cannot read ${path}`, cause);
    throw refusal(`read ${path}`, "it must be an undamaged Parquet file", message);
  }
}

/** Counts the values of a column from the headers of its pages, before any memory is taken for them. */
function countValues(
  chunk: ColumnChunk,
  { slice }: RandomAccess,
  parquetHeader: Hyparquet["parquetHeader"],
): number {
  const { data_page_offset: data, dictionary_page_offset: dictionary, ...sizes } = chunk;
  const start = Number(dictionary || data), end = start + Number(sizes.total_compressed_size);
  const reader = { view: new DataView(slice(start, end)), offset: 0 };
  let values = 0;
  while (reader.offset < reader.view.byteLength - 1) {
    const page = parquetHeader(reader), unpacked = page.uncompressed_page_size;
    const { num_values: keys = 0 } = page.dictionary_page_header ?? {};
    const isPage = page.compressed_page_size >= 0 && unpacked >= 0 && unpacked <= PAGE_MAX;
    const must = `a page must have at most ${PAGE_MAX} bytes, and a key in each`;
    assertInput(isPage && keys <= unpacked, "read rows", must, `${unpacked} bytes, ${keys} keys`);
    values += (page.data_page_header ?? page.data_page_header_v2)?.num_values ?? 0;
    reader.offset += page.compressed_page_size;
  }
  return values;
}
