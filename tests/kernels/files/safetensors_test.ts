/** Safetensors files, and the floats of 16 bits in them. */

import assert from "node:assert/strict";
import {
  decodeFloats,
  encodeFloats,
  readOpenSafetensors,
  type SafetensorsFile,
} from "../../../kernels/data/safetensors.ts";
import {
  encodeSafetensors,
  readSafetensors,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsTensor,
} from "../../../kernels/mod.ts";
import { layoutSafetensors } from "../../../kernels/data/safetensors.ts";
import { Buffer } from "node:buffer";
import { atDepth } from "../../depth.ts";
import fc from "../../fast_check.ts";
import { assertRefused } from "../graph/refused.ts";
import { inFolder } from "../../in_folder.ts";
import { join } from "node:path";

const DTYPES = Object.keys(SAFETENSORS_DTYPE_BYTES) as SafetensorsDType[];

const tensor: fc.Arbitrary<SafetensorsTensor> = fc
  .record({ dtype: fc.constantFrom(...DTYPES), shape: fc.array(fc.nat(4), { maxLength: 3 }) })
  .chain(({ dtype, shape }) => {
    const bytes = shape.reduce((a, b) => a * b, SAFETENSORS_DTYPE_BYTES[dtype]);
    return fc.uint8Array({ minLength: bytes, maxLength: bytes })
      .map((data) => ({ dtype, shape, data }));
  });

/** Names that are numbers are as frequent as others: records would have them first. */
const name = fc.oneof(fc.nat(20).map(String), fc.string()).filter((name) =>
  name !== "__metadata__"
);

const file = fc.record({
  tensors: fc.uniqueArray(
    fc.tuple(name, tensor),
    { selector: ([name]) => name, maxLength: 6 },
  ).map((entries) => new Map(entries)),
  metadata: fc.dictionary(fc.string(), fc.string(), { maxKeys: 3, noNullPrototype: true }),
});

/** Writes bytes to a file while `use` runs. */
const withFile = <T>(bytes: Uint8Array, use: (path: string) => Promise<T>): Promise<T> =>
  inFolder(async (folder) => {
    const path = join(folder, "a.safetensors");
    await Deno.writeFile(path, bytes);
    return await use(path);
  });

/** A file with this header text and this many zero bytes of tensors. */
function fileOf(header: string | Uint8Array, dataBytes = 0, headerBytes?: bigint): Uint8Array {
  const json = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, headerBytes ?? BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

/** An open file of a size that has only some pieces, one a read. */
const fakeFile = (size: number, ...pieces: Uint8Array[]): SafetensorsFile => ({
  [Symbol.dispose]() {},
  stat: () => Promise.resolve({ size }),
  seek: () => Promise.resolve(0),
  read(into: Uint8Array) {
    const piece = pieces.shift();
    into.set(piece ?? []);
    return Promise.resolve(piece?.length ?? null);
  },
});

/** Expects that a file is refused in one sentence that names it. */
const refuses = (bytes: Uint8Array, message: RegExp) =>
  withFile(bytes, (path) =>
    assert.rejects(readSafetensors(path), (error: Error) => {
      assert.match(`${error}`, message);
      return error.message.includes(path) && !error.message.includes("\n");
    }));

Deno.test("a written file is read unchanged", async () => {
  await fc.assert(
    fc.asyncProperty(file, async ({ tensors, metadata }) => {
      const loaded = await withFile(encodeSafetensors(tensors, metadata), readSafetensors);
      assert.deepEqual(loaded.metadata, metadata);
      assert.deepEqual([...loaded.tensors.keys()].sort(), [...tensors.keys()].sort());
      for (const [name, { dtype, shape, data }] of tensors) {
        assert.deepEqual(loaded.tensors.get(name), { dtype, shape, data: data as Uint8Array });
      }
    }),
  );
});

Deno.test("tensors are in the order of their names, aligned to their elements, as in the layout", () => {
  fc.assert(
    fc.property(file, ({ tensors, metadata }) => {
      const { header, names, fileBytes } = layoutSafetensors(tensors, metadata);
      const pieces = [header, ...names.map((name) => tensors.get(name)!.data as Uint8Array)];
      assert.ok(Buffer.concat(pieces).equals(encodeSafetensors(tensors, metadata)));
      let offset = header.length;
      names.forEach((name, i) => {
        const { dtype, data } = tensors.get(name)!;
        assert.equal(offset % SAFETENSORS_DTYPE_BYTES[dtype], 0);
        const before = tensors.get(names[i - 1]!);
        if (before?.dtype === dtype) assert.ok(names[i - 1]! < name);
        offset += data.byteLength;
      });
      assert.equal(offset, fileBytes);
    }),
  );
});

Deno.test("tensors are read directly into the given memory, or skipped", async () => {
  const data = Float32Array.of(1, 2, 3);
  const bytes = encodeSafetensors(
    new Map(["a", "b", "c"].map((name) => {
      const own = name === "b" ? data : data.map((one) => -one);
      return [name, { dtype: "F32", shape: [3], data: own }] as const;
    })),
  );
  const bucket = new Float32Array(new SharedArrayBuffer(32));
  const place = (name: string) => name === "b" ? new Uint8Array(bucket.buffer, 8, 12) : undefined;
  const { tensors } = await withFile(bytes, (path) => readSafetensors(path, place));
  assert.deepEqual([...tensors.keys()], ["b"]);
  assert.deepEqual([...bucket], [0, 0, 1, 2, 3, 0, 0, 0]);
  bucket.fill(0);
  await readSafetensors(bytes, place);
  assert.deepEqual([...bucket], [0, 0, 1, 2, 3, 0, 0, 0], "of bytes");
  const refusal = /^RangeError: Cannot read the bytes/;
  await assert.rejects(readSafetensors(bytes.subarray(0, 100)), refusal);
  await assert.rejects(
    withFile(bytes, (path) => readSafetensors(path, () => new Uint8Array(11))),
    /^RangeError: Cannot place tensor "a" of .* must be 12 bytes, received 11$/,
  );
});

Deno.test("a file cut anywhere is refused", async () => {
  const whole = encodeSafetensors(
    new Map([
      ["bias", { dtype: "F32", shape: [2], data: Float32Array.of(1, 2) }],
      ["ids", { dtype: "I64", shape: [1], data: BigInt64Array.of(3n) }],
    ]),
  );
  for (let length = 0; length < whole.length; length++) {
    await refuses(whole.subarray(0, length), /^(SyntaxError|RangeError): Cannot read /);
  }
});

Deno.test("a file with any bytes changed is refused or still tiles its data", async () => {
  const flip = fc.integer({ min: 1, max: 255 });
  await fc.assert(
    fc.asyncProperty(
      file,
      fc.array(fc.tuple(fc.nat(), flip), { minLength: 1, maxLength: 3 }),
      async ({ tensors, metadata }, changes) => {
        const bytes = encodeSafetensors(tensors, metadata);
        const { header } = layoutSafetensors(tensors, metadata);
        for (const [at, flip] of changes) bytes[at % header.length]! ^= flip;
        const wrong = (error: unknown) => {
          assert.ok(error instanceof SyntaxError || error instanceof RangeError, `${error}`);
        };
        const loaded = await withFile(bytes, readSafetensors).catch(wrong);
        if (!loaded) return;
        let total = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true));
        for (const { dtype, shape, data } of loaded.tensors.values()) {
          assert.equal(data.length, shape.reduce((a, b) => a * b, SAFETENSORS_DTYPE_BYTES[dtype]));
          total += data.length;
        }
        assert.equal(total, bytes.length);
      },
    ),
    { numRuns: atDepth(200, 2000) },
  );
});

Deno.test("a header of more than 100 MB is refused before it is read, for any size of the file", async () => {
  const reading = (headerBytes: bigint) =>
    readOpenSafetensors(fakeFile(1e12, fileOf("", 0, headerBytes)), "large", () => undefined);
  await assert.rejects(reading(100_000_001n), {
    name: "RangeError",
    message:
      "Cannot read large: the header must be at most 100000000 bytes, received a header length of 100000001",
  });
  const refusal = /the header must be 100000000 bytes, received fewer$/;
  await assert.rejects(reading(100_000_000n), refusal);
});

Deno.test("a tensor that does not fit into memory is named with its size, as in a sparse file", async () => {
  const bytes = 2 ** 40, entry = { dtype: "U8", shape: [bytes], data_offsets: [0, bytes] };
  const head = fileOf(JSON.stringify({ huge: entry }));
  const file = fakeFile(head.length + bytes, head.subarray(0, 8), head.subarray(8));
  await assert.rejects(readOpenSafetensors(file, "sparse", (_, __, size) => new Uint8Array(size)), {
    name: "RangeError",
    message:
      'Cannot read tensor "huge" of sparse: it must fit into memory, received 1099511627776 bytes',
  });
});

Deno.test("each error of a header is refused with the expected message", async () => {
  const utf8 = Uint8Array.of(0x22, 0xff, 0x22);
  await refuses(new Uint8Array(7), /^SyntaxError: .*8-byte header length, received 7 bytes/);
  await refuses(fileOf("{}", 0, 3n), /^RangeError: .*at most 2 bytes, received .* of 3$/);
  await refuses(fileOf("{}", 0, 2n ** 64n - 1n), /^RangeError: .*length of 1844674407370955/);
  await refuses(fileOf(utf8), /^SyntaxError: .*header must be JSON/);
  const empty = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}';
  const many = Array.from({ length: 100_001 }, (_, i) => `"${i}":${empty}`);
  await refuses(fileOf(`{${many}}`), /^RangeError: .* at most 100000 tensors, received 100001$/);
  const golden = new URL("../../golden/safetensors_refusals.jsonl", import.meta.url);
  const lines = (await Deno.readTextFile(golden)).trimEnd().split("\n");
  for (const { header, data, refusal } of lines.map((line) => JSON.parse(line))) {
    await withFile(
      fileOf(header, data),
      (path) =>
        assert.rejects(readSafetensors(path), (error: Error) => {
          assert.equal(`${error}`.replaceAll(path, "FILE"), refusal);
          return true;
        }),
    );
  }
});

Deno.test("tensors that cannot be written are refused", () => {
  const data = Float32Array.of(1, 2);
  const encode = (name: string, dtype: string, shape: number[]) =>
    encodeSafetensors(new Map([[name, { dtype: dtype as SafetensorsDType, shape, data }]]));
  return assertRefused("safetensors", [
    ["another size", () => encode("a", "F32", [3])],
    ["less than nothing", () => encode("a", "F32", [-2])],
    ["another dtype", () => encode("a", "f32", [2])],
    ["a reserved name", () => encode("__metadata__", "F32", [2])],
  ]);
});

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** All numbers of 16 bits, without NaN. */
const HALVES = Uint16Array.from({ length: 2 ** 16 }, (_, i) => i);

const isSame = (a: Float32Array, b: Float32Array) => {
  assert.deepEqual(new Uint32Array(a.buffer, a.byteOffset, a.length), new Uint32Array(b.buffer));
};

Deno.test("each number of F16 and BF16 is read as itself, and written as it was", () => {
  const view = new DataView(new ArrayBuffer(4));
  const expected = Float32Array.from(HALVES, (half) => {
    view.setUint16(0, half); // the upper half of an F32, whose lower one is zero
    return view.getFloat32(0);
  });
  const finite = HALVES.filter((_, i) => !Number.isNaN(expected[i]));
  isSame(decodeFloats("BF16", bytesOf(finite)), expected.filter((value) => !Number.isNaN(value)));
  for (const dtype of ["F16", "BF16"] as const) {
    const values = decodeFloats(dtype, bytesOf(HALVES)),
      numbers = HALVES.filter((_, i) => !Number.isNaN(values[i]));
    const again = encodeFloats(dtype, decodeFloats(dtype, bytesOf(numbers)));
    assert.deepEqual(again, bytesOf(numbers), dtype);
  }
  // The first above zero, the first that is normal, the largest, and a half.
  const known = Uint16Array.of(0x0001, 0x0400, 0x7bff, 0xb800);
  isSame(decodeFloats("F16", bytesOf(known)), Float32Array.of(2 ** -24, 2 ** -14, 65_504, -0.5));
});

Deno.test("a number between two is the nearer, and of two that are as near the even one", () => {
  const step = 2 ** -7; // of BF16 between 1 and 2
  const cases = [
    [1 + 0.49 * step, 1],
    [1 + 0.5 * step, 1],
    [1 + 0.51 * step, 1 + step],
    [1 + 1.5 * step, 1 + 2 * step],
    [-1 - 1.5 * step, -1 - 2 * step],
    [3.4e38, Infinity],
  ] as const;
  for (const [value, expected] of cases) {
    const [received] = decodeFloats("BF16", encodeFloats("BF16", Float32Array.of(value)));
    assert.equal(received, expected, `${value}`);
  }
  const [nothing] = decodeFloats("BF16", encodeFloats("BF16", Float32Array.of(NaN)));
  assert.ok(Number.isNaN(nothing));
});
