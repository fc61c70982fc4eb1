/** Checkpoints are written as tensors are read: the same bytes, and never a second copy of a state. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { readCheckpoint } from "../../../actors/checkpoints/read.ts";
import {
  eachTensor,
  gatherState,
  type HeldState,
  heldValues,
  PIECE_ELEMENTS,
  readPieces,
  readState,
  readTensor,
  type TensorSource,
} from "../../../actors/checkpoints/tensors.ts";
import { hashWeights } from "../../../actors/checkpoints/format.ts";
import { writeHeld } from "../../../actors/checkpoints/write.ts";
import { elementCount } from "../../../kernels/graph/shapes.ts";
import type { StageState } from "../../../kernels/stage/state.ts";
import { atDepth } from "../../depth.ts";
import { folderTest, namesIn } from "../../in_folder.ts";
import { stateWith } from "./write.ts";

/** More than a piece, less, a number for a name, nothing, and a piece and a bit. */
const SHAPES = new Map<string, readonly number[]>([
  ["z.weight", [3, 500_000]],
  ["a.bias", [7]],
  ["10", [2]],
  ["m.empty", [0]],
  ["m.weight", [1024, 1025]],
]);

function stateOf(seed = 0): StageState {
  const values = (shape: readonly number[], more: number) =>
    Float32Array.from({ length: elementCount(shape) }, (_, i) => (i % 1000) / 8 + more + seed);
  const shapeOf = (name: string) => SHAPES.get(name)!;
  return stateWith(
    [...SHAPES.keys()],
    (name, k) => values(shapeOf(name), k),
    (name, k, i) => values(shapeOf(name), 10 + 2 * k + i),
  );
}

const STATE = stateOf();

const held = (state = STATE): HeldState => heldValues(state, SHAPES);

const hashesOf = ({ weights, moments }: StageState) => [weights, moments].map(hashWeights);

/** The same state as workers hold it: parts of several tensors arrive in one transferred array. */
const heldByTwo = ({ shapes, read }: HeldState): HeldState => ({
  shapes,
  holderOf: (name) => Number(name < "b"),
  async read(parts) {
    assert.equal(new Set(parts.map(({ name }) => name < "b")).size, 1, "parts of one holder");
    const pieces = await Promise.all(
      parts.map(async (part) => new Float32Array(await read([part]))),
    );
    return new Float32Array(await new Blob(pieces).arrayBuffer());
  },
});

/** The files of such a checkpoint in every version so far. */
const { streamedFiles: FILES } = JSON.parse(
  Deno.readTextFileSync(new URL("golden.json", import.meta.url)),
);

folderTest("a checkpoint that is streamed has the bytes that it always had", async (folder) => {
  for (const state of [held(), heldByTwo(held())]) {
    const written = await writeHeld(folder, { step: 7, state, config: { a: 1 } });
    for (const [name, hash] of Object.entries(FILES)) {
      const bytes = await Deno.readFile(join(written.path, name));
      assert.equal(createHash("sha256").update(bytes).digest("hex"), hash, name);
    }
    assert.deepEqual(hashesOf(readState(written.state)), hashesOf(STATE));
  }
});

Deno.test("who reads slowly is not given more: two pieces are under way, whatever the state's size", async () => {
  let given = 0, taken = 0, most = 0;
  const shapes = { model: new Map([["w", [64 * PIECE_ELEMENTS]]]), optimizer: new Map() };
  const state: HeldState = {
    shapes,
    holderOf: () => 0,
    read: ([part]) => {
      const { from, to } = part!;
      given += to - from;
      most = Math.max(most, given - taken);
      return Promise.resolve(new Float32Array(to - from));
    },
  };
  for await (const { values } of readPieces(state, "model", ["w"])) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    taken += values.length;
  }
  assert.equal(given, 64 * PIECE_ELEMENTS);
  assert.ok(most <= 2 * PIECE_ELEMENTS, `at most two pieces, received ${most / PIECE_ELEMENTS}`);
});

Deno.test("a reader that leaves early waits for its pending reads, so that others can read", async () => {
  let isReading = false;
  const state: HeldState = {
    ...held(),
    async read(parts) {
      assert.ok(!isReading, "one question at a time");
      isReading = true;
      await new Promise((resolve) => setTimeout(resolve, 5));
      isReading = false;
      return await held().read(parts);
    },
  };
  for await (const _ of readPieces(state, "model", [...SHAPES.keys()])) break;
  assert.ok(!isReading);
});

Deno.test("a state that is gathered into arrays takes no others", async () => {
  const arrays = await gatherState(held()), other = stateOf(1);
  const again = await gatherState(held(other), arrays);
  assert.deepEqual(hashesOf(again), hashesOf(other));
  for (const kind of ["weights", "moments"] as const) {
    for (const [name, values] of again[kind]) assert.equal(values, arrays[kind].get(name));
  }
});

folderTest("a program killed at any piece of a checkpoint leaves the old one", async (folder) => {
  const { path } = await writeHeld(folder, { step: 1, state: held(), config: {} });
  const from = (path: string) =>
    JSON.stringify(import.meta.resolve(`../../../actors/checkpoints/${path}`));
  const source = `
    const { writeHeld } = await import(${from("write.ts")});
    const { PIECE_ELEMENTS } = await import(${from("tensors.ts")});
    let reads = 0;
    const state = {
      shapes: { model: new Map([["w", [3 * PIECE_ELEMENTS]]]), optimizer: new Map() },
      holderOf: () => 0,
      async read([{ from, to }]) {
        if (++reads === Number(Deno.args[1])) Deno.kill(Deno.pid, "SIGKILL");
        return new Float32Array(to - from);
      },
    };
    await writeHeld(Deno.args[0], { step: 2, state, config: {} });
  `;
  for (const nth of atDepth(["2"], ["1", "2", "3"])) {
    const args = ["eval", "--no-check", source, folder, nth];
    const { signal } = await new Deno.Command(Deno.execPath(), { args }).output();
    assert.equal(signal, "SIGKILL");
    assert.ok((await namesIn(folder)).some((name) => name.startsWith(".step-00000002-")));
    const told: string[] = [], left = (await readCheckpoint(folder, (line) => told.push(line)))!;
    assert.equal(left.path, path);
    assert.equal(hashWeights(left.state.weights), hashWeights(STATE.weights));
    assert.match(told.join(), /step-00000002-.*it is passed over/);
  }
});

folderTest("an error of a read leaves no checkpoint, and is not the disk's", async (folder) => {
  await writeHeld(folder, { step: 1, state: held(), config: {} });
  let reads = 0;
  const lost = new Error("worker-1 is gone"), whole = held();
  const state: HeldState = {
    ...whole,
    read: (parts) => ++reads === 3 ? Promise.reject(lost) : whole.read(parts),
  };
  await assert.rejects(writeHeld(folder, { step: 2, state, config: {} }), lost);
  assert.deepEqual(await namesIn(folder), ["step-00000001"]);
});

folderTest("a tensor in pieces of any length has the bits of the whole", async (folder) => {
  const inPieces = (source: TensorSource, most: number) => {
    const whole = new Float32Array(7);
    const state = { weights: new Map([["w", source]]), moments: new Map() };
    eachTensor(state, (_, values, from = 0) => whole.set(values, from), most);
    return whole;
  };
  const path = join(folder, "tensor");
  const values = Float32Array.of(9, 9, 1, 2, 3, 4, 5, 6, 7, 9),
    bytes = new Uint8Array(values.buffer);
  await Deno.writeFile(path, bytes);
  const sha256 = createHash("sha256").update(bytes.subarray(8, 36)).digest("hex");
  const placed = { kind: "placed", path, at: 8, bytes: 28, sha256 } as const;
  const normal = { kind: "normal", deviation: 0.02 } as const;
  const spec = { name: "w", shape: [7], initializer: normal };
  const drawn = { kind: "drawn", spec, name: "w", seed: 3 } as const;
  for (const source of [placed, drawn, values.slice(1, 8)]) {
    for (const most of [1, 2, 3, 6, 7, Infinity]) {
      assert.deepEqual(inPieces(source, most), readTensor(source), `${most} elements a piece`);
    }
  }
  for (const wrong of [{ ...placed, at: 4 }, { ...placed, at: 16, sha256: undefined }]) {
    assert.throws(() => inPieces(wrong, 3), /Cannot read .*: the 28 bytes from \d+ on must/);
  }
});
