/** The layout notation: what it reads, what it writes, and what it refuses. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import {
  compileModel,
  formatLayout,
  gpt2,
  type Gpt2Config,
  mlp,
  partition,
  readLayout,
} from "../../../kernels/mod.ts";

const layersOf = (config: Partial<Gpt2Config> = {}) =>
  compileModel(
    gpt2({ layers: 4, hidden: 8, heads: 2, seq: 4, vocab: 16, ...config }, 1),
    "none",
  ).layers;

Deno.test("a layout of blocks, half blocks, embedding and head says where stages begin", () => {
  const layers = layersOf();
  const starts: Readonly<Record<string, number[]>> = {
    "E,4,H": [0],
    "E|4|H": [0, 1, 9],
    "E,1|3,H": [0, 3],
    "E,1.5|2.5,H": [0, 4],
    " E , 1,1 | .5 | 1.5,H": [0, 5, 6],
  };
  for (const [layout, expected] of Object.entries(starts)) {
    const stages = layout.split("|").length;
    assert.deepEqual(readLayout(layout, layers, stages), expected, layout);
  }
});

Deno.test("slices of a head are an H each, and all layers of an MLP count", () => {
  assert.deepEqual(readLayout("E,4,H|H,H", layersOf({ headSlices: 3 }), 2), [0, 10]);
  const { layers } = compileModel(mlp({ inputs: 4, hidden: 4, layers: 3, classes: 2 }, 1), "none");
  assert.deepEqual(readLayout("1|3", layers, 2), [0, 1]);
  assert.equal(formatLayout(layers, [0, 1, 3]), "1|2|1");
});

Deno.test("every cut is read as it is written, blocks of three layers among them", () => {
  const models = [layersOf(), layersOf({ headSlices: 2 }), thirds()];
  fc.assert(fc.property(
    fc.constantFrom(...models),
    fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 12, maxLength: 12 }),
    fc.integer({ min: 1, max: 8 }),
    (layers, costs, stages) => {
      const starts = partition(costs.slice(0, layers.length), stages);
      assert.deepEqual(readLayout(formatLayout(layers, starts), layers, stages), starts);
    },
  ));
});

/** A model whose blocks have three layers. */
const thirds = () =>
  Array.from({ length: 9 }, (_, i) => {
    const block = `block ${Math.floor(i / 3)}`;
    return { name: `${block} part ${i % 3}`, block, prefix: "", program: 0 };
  });

Deno.test("a layout that is none, or not of this model, is refused with what the model has", () => {
  const layers = layersOf();
  const refusals: [layout: string, name: string, message: string][] = [
    ["E,x|4,H", "SyntaxError", 'with commas between them, such as E,4|4|3,H, received "x"'],
    ["E,4||H", "SyntaxError", 'received ""'],
    ["E,0|4,H", "SyntaxError", 'received "0"'],
    ["E,-1|5,H", "SyntaxError", 'received "-1"'],
    ["E,1e0|3,H", "SyntaxError", 'received "1e0"'],
    ["E,4,H", "RangeError", "its stages must be as many as the schedule has, 2, received 1"],
    ["E,1|2,H", "RangeError", "all that the model has in order, E,4,H, received E,3,H"],
    ["E,1|4,H", "RangeError", "E,4,H, received E,5,H"],
    ["4|E,H", "RangeError", "E,4,H, received 4,E,H"],
    ["E,2|2", "RangeError", "E,4,H, received E,4"],
    ["E,2|2,H,H", "RangeError", "E,4,H, received E,4,H,H"],
    ["E,1.3|2.7,H", "RangeError", "whole layers, of which a block has 2"],
  ];
  for (const [layout, name, message] of refusals) {
    assert.throws(() => readLayout(layout, layers, 2), (error: Error) => {
      assert.equal(error.name, name, layout);
      assert.ok(error.message.startsWith(`Cannot use the layout "${layout}": `), error.message);
      assert.ok(error.message.endsWith(message) || error.message.includes(message), error.message);
      return true;
    });
  }
});
