/** The shapes of what windows move over, and what is refused where a graph is built. */

import assert from "node:assert/strict";
import { Graph, type Value } from "../../../kernels/mod.ts";

const image = (g: Graph, ...shape: number[]) => g.input("x", shape);

Deno.test("windows are counted as PyTorch and ONNX do", () => {
  const g = new Graph(), x = image(g, 2, 3, 7, 8), w = g.input("w", [4, 3, 3, 2]);
  const same = { pads: "SAME_UPPER", strides: 2 } as const;
  assert.deepEqual(g.conv(x, w).shape, [2, 4, 5, 7]);
  assert.deepEqual(g.conv(x, w, undefined, { pads: [1, 0, 2, 1] }).shape, [2, 4, 8, 8]);
  assert.deepEqual(g.conv(x, w, undefined, { dilations: [3, 1] }).shape, [2, 4, 1, 7]);
  assert.deepEqual(g.conv(x, w, undefined, same).shape, [2, 4, 4, 4]);
  assert.deepEqual(g.maxPool(x, 2, { strides: 2 }).shape, [2, 3, 3, 4]);
  assert.deepEqual(g.maxPool(x, 2, { strides: 2, ceilMode: true }).shape, [2, 3, 4, 4]);
  // A window that would begin in the padding behind is none.
  const padded = { strides: 3, pads: 1, ceilMode: true };
  assert.deepEqual(g.maxPool(image(new Graph(), 1, 1, 5, 5), 2, padded).shape, [1, 1, 2, 2]);
  const back = g.input("t", [3, 4, 3, 3]);
  assert.deepEqual(g.convTranspose(x, back, undefined, same).shape, [2, 4, 14, 16]);
  const moved = g.convTranspose(x, back, undefined, { strides: 2, pads: 1, outputPadding: 1 });
  assert.deepEqual(moved.shape, [2, 4, 14, 16]);
});

Deno.test("what does not fit is refused where it is written", () => {
  const refused: readonly [(g: Graph, x: Value, w: Value, b: Value) => Value, RegExp][] = [
    [(g, x, w) => g.conv(x, w, undefined, { groups: 2 }), /channels must be.*in 2 groups/],
    [(g, x, w, b) => g.conv(x, w, b), /bias must be \[4\], received \[3\]/],
    [
      (g, x, w) => g.conv(x, w, undefined, { strides: 0 }),
      /strides must be 2 whole numbers from 1/,
    ],
    [(g, x, w) => g.conv(x, w, undefined, { pads: [1, 2, 3] }), /pads must be 4 whole numbers/],
    [(g, x, w) => g.conv(x, w, undefined, { dilations: 9 }), /axis 0 lacks 12/],
    [(g, x) => g.conv(g.reshape(x, [2, 3, 7, 2, 4]), x), /\[n, channels, height, width\]/],
    [(g, x) => g.convTranspose(x, x), /channels must be those of the weight/],
    [
      (g, x, w) => g.convTranspose(g.split(g.concat([x, x], 1), 1, 6)[0]!, w, undefined, {}),
      /channels must be/,
    ],
    [(g, x) => g.maxPool(x, 2, { pads: 2 }), /pads must be smaller than the window/],
    [(g, x) => g.maxPool(x, 9), /must fit into the padded axes/],
    [(g, x) => g.maxPool(g.reshape(x, [6, 56]), 2), /Cannot pool: x must be/],
    [(g, x, _, b) => g.groupNorm(x, 2, b, b), /divide the channels, 3, received 2/],
    [(g, x, w, b) => g.groupNorm(x, 3, b, g.reshape(w, [72])), /must be \[3\], received \[72\]/],
    [(g, x) => g.upsample(x, 1.5), /factors must be whole numbers from 1, received \[1.5\]/],
    [(g, x) => g.resize(x, [0, 4]), /sizes must be 2 whole numbers from 1/],
    [(g, x) => g.pad(x, [1, 1]), /pads must be 8 whole numbers from 0/],
    [(g, x) => g.pad(x, [0, 0, 7, 0, 0, 0, 0, 0], "reflect"), /Cannot reflect: .*7, received 7/],
  ];
  for (const [build, message] of refused) {
    const g = new Graph(), w = g.input("w", [4, 3, 3, 2]), b = g.input("b", [3]);
    const x = image(g, 2, 3, 7, 8);
    assert.throws(() => build(g, x, w, b), { name: "RangeError", message });
  }
});

Deno.test("output padding is smaller than the strides", () => {
  const g = new Graph(), x = image(g, 1, 3, 4, 4), w = g.input("w", [3, 2, 2, 2]);
  assert.throws(
    () => g.convTranspose(x, w, undefined, { strides: 2, outputPadding: 2 }),
    {
      name: "RangeError",
      message: /output padding must be .* below the strides \[2,2\], received \[2\]/,
    },
  );
});
