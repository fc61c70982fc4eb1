/**
 * GPT-2 for generation: the layers of {@linkcode gpt2}, with the keys and values of the tokens before
 * in a cache, so that one more token costs one row.
 *
 * @module
 */

import type { Value } from "../graph/value.ts";
import { layerNorm, linear } from "./affine.ts";
import { causalMask, checkGpt2, feedForward, type Gpt2Config, MASKED } from "./gpt2.ts";
import { logits } from "./gpt2_head.ts";
import type { LayerGraph } from "./layer.ts";

/** One layer. Those of one kind compute the same, with parameters of their own. */
export interface CachedLayer {
  /** What it is: an embedding, an attention, a feed-forward network or the head. */
  readonly kind: "embedding" | "attention" | "mlp" | "head";
  /** Put before the names of its parameters. */
  readonly prefix: string;
  /**
   * Builds its graph.
   *
   * @param x rows of the residual stream, [rows, hidden]; of the embedding undefined.
   * @returns what it computes, by name: `y`, and of an attention the `keys` and `values` to be kept.
   */
  build(g: LayerGraph, x: Value | undefined): Readonly<Record<string, Value>>;
}

/**
 * The layers for `rows` tokens. Fields are `ids` and `positions`, int32 [rows], and `last`, int32
 * [1]: the row whose logits, [1, vocabulary], are wanted.
 *
 * One row goes on from a cache, the inputs `keys` and `values`, [seq, hidden]: those of the rows
 * before its position. More rows begin at position 0 and are what the cache then begins with.
 *
 * @throws {RangeError} as {@linkcode gpt2}.
 */
export function cachedGpt2(config: Gpt2Config, rows: number): CachedLayer[] {
  checkGpt2(config, 1);
  const blocks = Array.from({ length: config.layers }, (_, i): CachedLayer[] => {
    const prefix = `transformer.h.${i}.`;
    return [
      { kind: "attention", prefix, build: (g, x) => attention(g, x!, config, rows) },
      { kind: "mlp", prefix, build: (g, x) => ({ y: feedForward(g, x!, config) }) },
    ];
  });
  return [
    { kind: "embedding", prefix: "transformer.", build: (g) => embedding(g, config, rows) },
    ...blocks.flat(),
    {
      kind: "head",
      prefix: "",
      build: (g, x) => {
        const row = rows === 1 ? x! : g.gather(x!, g.batch("last", [1], "i32"));
        return { y: logits(g, row, config) };
      },
    },
  ];
}

function embedding(g: LayerGraph, { hidden, seq, vocab }: Gpt2Config, rows: number) {
  const rowsOf = (table: string, size: number, field: string) =>
    g.gather(g.parameter(table, [size, hidden]), g.batch(field, [rows], "i32"));
  return { y: g.add(rowsOf("wte.weight", vocab, "ids"), rowsOf("wpe.weight", seq, "positions")) };
}

/** Keys and values of all tokens, [tokens, hidden], and what is added to the scores of each. */
interface Attended {
  readonly keys: Value;
  readonly values: Value;
  readonly mask: Value;
}

function attention(g: LayerGraph, x: Value, config: Gpt2Config, rows: number) {
  const { hidden, heads } = config, width = hidden / heads;
  const [q, k, v] = g.split(linear(g, layerNorm(g, x, "ln_1"), "attn.c_attn", 3 * hidden), 1, 3);
  const { keys, values, mask } = rows === 1
    ? goOn(g, k!, v!, config)
    : { keys: k!, values: v!, mask: g.constant(causalMask(rows), [1, rows, rows]) };
  const byHead = (part: Value) =>
    g.transpose(g.reshape(part, [part.shape[0]!, heads, width]), [1, 0, 2]);
  const scores = g.matmul(byHead(q!), byHead(keys), { transB: true, alpha: 1 / Math.sqrt(width) });
  const mixed = g.matmul(g.softmax(g.add(scores, mask)), byHead(values));
  const joined = g.reshape(g.transpose(mixed, [1, 0, 2]), [rows, hidden]);
  return { y: g.add(x, linear(g, joined, "attn.c_proj", hidden)), keys, values };
}

/** The cache with the row at `positions`; what is behind it is masked, whatever it holds. */
function goOn(g: LayerGraph, k: Value, v: Value, { hidden, seq }: Gpt2Config): Attended {
  const position = g.batch("positions", [1], "i32");
  const index = (shape: readonly number[]) =>
    g.constant(Int32Array.from({ length: seq }, (_, i) => i), shape, "i32");
  const isBefore = g.greater(position, index([seq, 1]));
  const kept = (name: string, row: Value) => g.where(isBefore, g.input(name, [seq, hidden]), row);
  const isBehind = g.greater(index([1, 1, seq]), position);
  return {
    keys: kept("keys", k),
    values: kept("values", v),
    mask: g.where(isBehind, g.scalar(MASKED), g.scalar(0)),
  };
}
