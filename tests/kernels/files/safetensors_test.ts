import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  encodeSafetensors,
  layoutSafetensors,
  readOpenSafetensors,
  readSafetensors,
  SAFETENSORS_DTYPE_BYTES,
  type SafetensorsDType,
  type SafetensorsFile,
  type SafetensorsTensor,
} from "../../../kernels/mod.ts";

const DTYPES = Object.keys(SAFETENSORS_DTYPE_BYTES) as SafetensorsDType[];

const tensor: fc.Arbitrary<SafetensorsTensor> = fc
  .record({
    dtype: fc.constantFrom(...DTYPES),
    shape: fc.array(fc.nat(4), { maxLength: 3 }),
  })
  .chain(({ dtype, shape }) => {
    const bytes = shape.reduce((a, b) => a * b, SAFETENSORS_DTYPE_BYTES[dtype]);
    return fc.uint8Array({ minLength: bytes, maxLength: bytes })
      .map((data) => ({ dtype, shape, data }));
  });

const file = fc.record({
  tensors: fc.uniqueArray(
    fc.tuple(fc.string().filter((name) => name !== "__metadata__"), tensor),
    { selector: ([name]) => name, maxLength: 6 },
  ).map((entries) => new Map(entries)),
  metadata: fc.dictionary(fc.string(), fc.string(), { maxKeys: 3, noNullPrototype: true }),
});

/** Writes bytes to a file for as long as `use` runs. */
async function withFile<T>(bytes: Uint8Array, use: (path: string) => Promise<T>): Promise<T> {
  const path = await Deno.makeTempFile({ suffix: ".safetensors" });
  try {
    await Deno.writeFile(path, bytes);
    return await use(path);
  } finally {
    await Deno.remove(path);
  }
}

/** A file with this header text and this many zero bytes of tensors. */
function fileOf(header: string | Uint8Array, dataBytes = 0, headerBytes?: bigint): Uint8Array {
  const json = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, headerBytes ?? BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

const entry = (
  begin: number,
  end: number,
  dtype = "F32",
  shape: unknown = [(end - begin) / 4],
) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

/** Rejections name the file and are one of the two classes that callers can expect. */
async function refuses(bytes: Uint8Array, type: typeof Error, message: RegExp): Promise<void> {
  await withFile(bytes, (path) =>
    assert.rejects(readSafetensors(path), (error: Error) => {
      assert.equal(error.constructor, type, String(error));
      assert.match(error.message, message);
      assert.ok(error.message.includes(path), error.message);
      assert.ok(!error.message.includes("\n"), error.message);
      return true;
    }));
}

Deno.test("what is written is what is read", async () => {
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

Deno.test("tensors lie in name order, aligned to their elements", () => {
  fc.assert(
    fc.property(file, ({ tensors }) => {
      const { header, names, fileBytes } = layoutSafetensors(tensors);
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

Deno.test("a layout written piece by piece is the encoded file", async () => {
  const tensors = new Map(
    ["b", "10", "2", "a"].map((name, i) => [
      name,
      { dtype: "F32", shape: [i], data: new Float32Array(i).fill(i) } as const,
    ]),
  );
  const { header, names } = layoutSafetensors(tensors, { a: "b" });
  assert.deepEqual(names, ["10", "2", "a", "b"]);
  const pieces = [header, ...names.map((name) => tensors.get(name)!.data)];
  const streamed = new Uint8Array(await new Blob(pieces).arrayBuffer());
  assert.deepEqual(streamed, encodeSafetensors(tensors, { a: "b" }));
});

Deno.test("a file that another program wrote is read", async () => {
  const path = new URL("../../fixtures/gpt2/weights.safetensors", import.meta.url).pathname;
  const { tensors } = await readSafetensors(path);
  assert.equal(tensors.size, 29);
  const weight = tensors.get("transformer.h.1.attn.c_attn.weight")!;
  assert.equal(weight.dtype, "F32");
  assert.deepEqual(weight.shape, [32, 96]);
  const norm = new Float32Array(tensors.get("transformer.ln_f.weight")!.data.buffer);
  assert.ok(norm.every((scale) => scale > 0.5 && scale < 1.5));
});

Deno.test("tensors are read straight into the memory they are given, or skipped", async () => {
  const data = Float32Array.of(1, 2, 3);
  const bytes = encodeSafetensors(
    new Map(["a", "b", "c"].map((name) => [name, { dtype: "F32", shape: [3], data }] as const)),
  );
  const bucket = new Float32Array(new SharedArrayBuffer(32));
  const { tensors } = await withFile(
    bytes,
    (path) =>
      readSafetensors(
        path,
        (name) => name === "b" ? new Uint8Array(bucket.buffer, 8, 12) : undefined,
      ),
  );
  assert.deepEqual([...tensors.keys()], ["b"]);
  assert.deepEqual([...bucket], [0, 0, 1, 2, 3, 0, 0, 0]);
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
    await withFile(
      whole.subarray(0, length),
      (path) =>
        assert.rejects(readSafetensors(path), (error: Error) => {
          assert.ok([SyntaxError, RangeError].some((type) => error.constructor === type));
          return error.message.startsWith("Cannot read ");
        }, `cut to ${length} bytes`),
    );
  }
});

Deno.test("a file with any bytes changed is refused or still tiles its data", async () => {
  await fc.assert(
    fc.asyncProperty(
      file,
      fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), {
        minLength: 1,
        maxLength: 3,
      }),
      async ({ tensors, metadata }, changes) => {
        const bytes = encodeSafetensors(tensors, metadata);
        const { header } = layoutSafetensors(tensors, metadata);
        for (const [at, flip] of changes) bytes[at % header.length]! ^= flip;
        try {
          const loaded = await withFile(bytes, readSafetensors);
          let total = 0;
          for (const { dtype, shape, data } of loaded.tensors.values()) {
            const expected = shape.reduce((a, b) => a * b, SAFETENSORS_DTYPE_BYTES[dtype]);
            assert.equal(data.length, expected);
            total += data.length;
          }
          const headerBytes = Number(new DataView(bytes.buffer).getBigUint64(0, true));
          assert.equal(total, bytes.length - 8 - headerBytes);
        } catch (error) {
          if (error instanceof SyntaxError || error instanceof RangeError) return;
          throw error;
        }
      },
    ),
    { numRuns: 300 },
  );
});

Deno.test("a header of more than 100 MB is refused before it is read, however large the file", async () => {
  const reading = (headerBytes: bigint) => {
    const prefix = new Uint8Array(8);
    new DataView(prefix.buffer).setBigUint64(0, headerBytes, true);
    let isRead = false;
    const file: SafetensorsFile = {
      [Symbol.dispose]() {},
      stat: () => Promise.resolve({ size: 1e12 }),
      seek: () => Promise.resolve(0),
      read(into: Uint8Array): Promise<number | null> {
        if (isRead) return Promise.resolve(null);
        isRead = true;
        into.set(prefix);
        return Promise.resolve(prefix.length);
      },
    };
    return readOpenSafetensors(file, "large", () => undefined);
  };
  await assert.rejects(reading(100_000_001n), {
    name: "RangeError",
    message:
      "Cannot read large: the header must be at most 100000000 bytes, received a header length of 100000001",
  });
  await assert.rejects(reading(100_000_000n), /the header must be 100000000 bytes, was cut$/);
});

Deno.test("each thing a header can get wrong is told in one sentence", async () => {
  const json = (header: unknown) => JSON.stringify(header);
  const cases: [Uint8Array, typeof Error, RegExp][] = [
    [new Uint8Array(7), SyntaxError, /8-byte header length, received 7 bytes/],
    [fileOf("{}", 0, 3n), RangeError, /header must be at most 2 bytes, received .* of 3$/],
    [fileOf("{}", 0, 2n ** 64n - 1n), RangeError, /received a header length of 1844674407370955/],
    [fileOf("{\n\n!", 0), SyntaxError, /header must be JSON, received "{\\n\\n!"$/],
    [fileOf(json({ "a\nb": 1 })), SyntaxError, /tensor "a\\nb" of/],
    [fileOf(Uint8Array.of(0x22, 0xff, 0x22)), SyntaxError, /header must be JSON/],
    [fileOf("[]"), SyntaxError, /header must be a JSON object, received \[\]$/],
    [fileOf(json({ __metadata__: { a: 1 } })), SyntaxError, /__metadata__ must map/],
    [fileOf(json({ __metadata__: null })), SyntaxError, /__metadata__ must map/],
    [fileOf(json({ a: 1 })), SyntaxError, /"a" of .*: its entry must be an object, received 1$/],
    [fileOf(json({ a: entry(0, 8, "F31") }), 8), SyntaxError, /"a".*dtype .*received "F31"$/],
    [fileOf(json({ a: entry(0, 8, "toString") }), 8), SyntaxError, /received "toString"$/],
    [fileOf(json({ a: entry(0, 8, "F32", [-2]) }), 8), SyntaxError, /shape .*received \[-2\]$/],
    [fileOf(json({ a: entry(0, 8, "F32", [0.5]) }), 8), SyntaxError, /shape .*received \[0.5\]$/],
    [fileOf(json({ a: entry(0, 8, "F32", 2) }), 8), SyntaxError, /shape .*received 2$/],
    [fileOf(json({ a: { dtype: "F32", shape: [] } }), 4), SyntaxError, /received nothing$/],
    [
      fileOf(json({ a: entry(0, 8, "F16", [2]) }), 8),
      RangeError,
      /F16 .*must be 4 bytes.* 8 bytes$/,
    ],
    [fileOf(json({ a: entry(0, 8, "F32", [3]) }), 8), RangeError, /must be 12 bytes/],
    [fileOf(json({ a: entry(0, 8, "F32", [2 ** 52, 2 ** 52]) }), 8), RangeError, /"a"/],
    [fileOf(json({ a: entry(8, 0, "F32", [0]) }), 8), RangeError, /of -8 bytes$/],
    [
      fileOf(json({ a: entry(0, 8), b: entry(4, 12) }), 12),
      RangeError,
      /"b".*8, received 4.*overlap/,
    ],
    [fileOf(json({ a: entry(0, 4), b: entry(8, 12) }), 12), RangeError, /"b".*4, received 8.*hole/],
    [fileOf(json({ a: entry(4, 8) }), 8), RangeError, /"a".*begin at offset 0, received 4.*hole/],
    [fileOf(json({ a: entry(0, 8) }), 7), RangeError, /"a".*8 bytes.*received 7, so it is trunc/],
    [fileOf(json({ a: entry(0, 8) }), 9), RangeError, /must end after 8 bytes .* received 9$/],
  ];
  for (const [bytes, type, message] of cases) await refuses(bytes, type, message);
});

Deno.test("what cannot be a file is not written", () => {
  const data = Float32Array.of(1, 2);
  const encode = (name: string, dtype: string, shape: number[]) =>
    encodeSafetensors(new Map([[name, { dtype: dtype as SafetensorsDType, shape, data }]]));
  assert.throws(() => encode("a", "F32", [3]), /^RangeError: .*"a".* 12 bytes, received 8$/);
  assert.throws(() => encode("a", "F32", [-2]), /^RangeError: .*whole numbers .* received \[-2\]$/);
  assert.throws(() => encode("a", "f32", [2]), /^TypeError: .*dtype "f32" is not known$/);
  assert.throws(() => encode("__metadata__", "F32", [2]), /^TypeError: .*reserved/);
});
