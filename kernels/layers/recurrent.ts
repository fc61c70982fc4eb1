/**
 * Recurrent layers, unrolled over the steps of a sequence, with PyTorch's names, gates and defaults.
 *
 * @module
 */

import { assertInput, checkPositive } from "../errors.ts";
import type { Value } from "../graph/value.ts";
import { type Initializer, type LayerGraph, parameterName } from "./layer.ts";

/** Options of {@linkcode lstm} and {@linkcode gru}. */
export interface RecurrentOptions {
  /** Prefix of the names of the parameters, before a dot. Default: none. */
  readonly name?: string | undefined;
  /** Size of the state. */
  readonly hidden: number;
  /** Layers, each of which reads the states of the one below. Default 1. */
  readonly layers?: number;
  /** True if the gates have biases. Default true. */
  readonly bias?: boolean;
}

/** State of the samples after a step, h and c, [samples, hidden] each; only an LSTM uses c. */
type State = readonly [h: Value, c: Value];

/** Returns the next state, given the products of the gates with the input and with h. */
type Cell = (g: LayerGraph, input: Value, product: Value, state: State) => State;

const lstmCell: Cell = (g, input, product, [, c]) => {
  const [i, f, next, o] = g.split(g.add(input, product), 1, 4) as [Value, Value, Value, Value];
  const kept = g.mul(g.sigmoid(f), c), added = g.mul(g.sigmoid(i), g.tanh(next));
  const memory = g.add(kept, added);
  return [g.mul(g.sigmoid(o), g.tanh(memory)), memory];
};

const gruCell: Cell = (g, input, product, [h, c]) => {
  const [r, z, n] = g.split(input, 1, 3) as [Value, Value, Value];
  const [rh, zh, nh] = g.split(product, 1, 3) as [Value, Value, Value];
  const next = g.tanh(g.add(n, g.mul(g.sigmoid(g.add(r, rh)), nh)));
  return [g.add(next, g.mul(g.sigmoid(g.add(z, zh)), g.sub(h, next))), c];
};

/**
 * Long short-term memory (Hochreiter and Schmidhuber 1997): x [samples, steps, inputs] gives the state
 * of the last layer after each step, [samples, steps, hidden]. The first state is 0. Parameters are
 * `weight_ih_l0` [4·hidden, inputs], `weight_hh_l0` [4·hidden, hidden], `bias_ih_l0` and `bias_hh_l0`,
 * with the gates input, forget, cell, output; those of the next layer end in `l1`.
 *
 * @throws {RangeError} when x is not [samples, steps, inputs], or there is no layer.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { LayerGraph, lstm } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph();
 * const y = lstm(g, g.input("x", [2, 5, 8]), { name: "lstm", hidden: 3 });
 * assert.deepEqual(y.shape, [2, 5, 3]);
 * const last = g.slice(y, [4], [5], [1]); // the state after the last step
 * assert.deepEqual(last.shape, [2, 1, 3]);
 * assert.deepEqual(g.parameters.map(({ spec: { name, shape } }) => [name, shape]), [
 *   ["lstm.weight_ih_l0", [12, 8]],
 *   ["lstm.weight_hh_l0", [12, 3]],
 *   ["lstm.bias_ih_l0", [12]],
 *   ["lstm.bias_hh_l0", [12]],
 * ]);
 * ```
 */
export const lstm = (g: LayerGraph, x: Value, options: RecurrentOptions): Value =>
  unroll(g, x, options, 4, lstmCell);

/**
 * Gated recurrent unit (Cho et al. 2014), in PyTorch's variant, with inputs, outputs and parameters as
 * {@linkcode lstm}, and the gates reset, update, new.
 *
 * @throws as {@linkcode lstm}.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { gru, LayerGraph } from "@troupe/troupe/kernels";
 *
 * const g = new LayerGraph();
 * assert.deepEqual(gru(g, g.input("x", [2, 5, 8]), { hidden: 3, layers: 2 }).shape, [2, 5, 3]);
 * assert.deepEqual(g.parameters[4]!.spec.name, "weight_ih_l1");
 * ```
 */
export const gru = (g: LayerGraph, x: Value, options: RecurrentOptions): Value =>
  unroll(g, x, options, 3, gruCell);

function unroll(
  g: LayerGraph,
  x: Value,
  { name, hidden, layers = 1, bias = true }: RecurrentOptions,
  gates: number,
  cell: Cell,
): Value {
  const [samples, steps] = x.shape as [number, number], size = gates * hidden;
  const cannot = "unroll a recurrent layer";
  assertInput(x.shape.length === 3, cannot, "x must be [samples, steps, inputs]", `[${x.shape}]`);
  assertInput(layers >= 1 && Number.isInteger(layers), cannot, "layers must be from 1", layers);
  checkPositive(cannot, { hidden });
  const zero = g.expand(g.scalar(0), [samples, hidden]), high = 1 / Math.sqrt(hidden);
  const initial: Initializer = { kind: "uniform", low: -high, high };
  let inputs = x;
  for (let layer = 0; layer < layers; layer++) {
    const declare = (what: string, shape: readonly number[]) =>
      g.parameter(parameterName(name, `${what}_l${layer}`), shape, initial);
    const width = inputs.shape[2]!;
    const ofInput = declare("weight_ih", [size, width]);
    const ofState = declare("weight_hh", [size, hidden]);
    const [inputBias, stateBias] = bias
      ? [declare("bias_ih", [size]), declare("bias_hh", [size])]
      : [];
    const gemm = (a: Value, weight: Value, c: Value | undefined) =>
      g.gemm(a, weight, c, { transB: true });
    const all = gemm(g.reshape(inputs, [samples * steps, width]), ofInput, inputBias);
    const ofSteps = g.split(g.reshape(all, [samples, steps, size]), 1, steps);
    const outputs: Value[] = [];
    let state: State = [zero, zero];
    for (const one of ofSteps) {
      const product = gemm(state[0], ofState, stateBias);
      state = cell(g, g.reshape(one, [samples, size]), product, state);
      outputs.push(g.reshape(state[0], [samples, 1, hidden]));
    }
    inputs = g.concat(outputs, 1);
  }
  return inputs;
}
