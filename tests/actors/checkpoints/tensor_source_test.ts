import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  eachTensor,
  readTensor,
  type TensorSource,
} from "../../../actors/checkpoints/tensors/tensor_source.ts";

/** A tensor of a source, put together from pieces of so many elements. */
function inPieces(source: TensorSource, most: number): Float32Array {
  const whole = new Float32Array(7);
  const state = { weights: new Map([["w", source]]), moments: new Map() };
  eachTensor(state, (_, values, from = 0) => whole.set(values, from), most);
  return whole;
}

Deno.test("a tensor in pieces of any length has the bits of the whole", async () => {
  const path = await Deno.makeTempFile();
  const values = Float32Array.of(9, 9, 1, 2, 3, 4, 5, 6, 7, 9),
    bytes = new Uint8Array(values.buffer);
  await Deno.writeFile(path, bytes);
  const sha256 = createHash("sha256").update(bytes.subarray(8, 36)).digest("hex");
  const placed = { kind: "placed", path, at: 8, bytes: 28, sha256 } as const;
  const normal = { kind: "normal", deviation: 0.02 } as const;
  const drawn = {
    kind: "drawn",
    spec: { name: "w", shape: [7], initializer: normal },
    name: "w",
    seed: 3,
  } as const;
  for (const source of [placed, drawn, values.slice(1, 8)]) {
    for (const most of [1, 2, 3, 6, 7, Infinity]) {
      assert.deepEqual(inPieces(source, most), readTensor(source), `${most} elements a piece`);
    }
  }
  for (const wrong of [{ ...placed, at: 4 }, { ...placed, at: 16, sha256: undefined }]) {
    assert.throws(() => inPieces(wrong, 3), /Cannot read .*: the 28 bytes from \d+ on must/);
  }
  await Deno.remove(path);
});
