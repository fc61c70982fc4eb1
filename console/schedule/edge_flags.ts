/**
 * The flags that say which values go beyond the next stage: those of `troupe schedule`.
 *
 * @module
 */

import type { SkipEdge } from "../../schedules/mod.ts";
import { readCost, readSize } from "../flags/quantities.ts";

/** Skip edges, and what their messages take. */
export const EDGE_FLAGS = {
  "skip-edges": {
    kind: "own",
    value: "EDGES",
    read: readEdges,
    must: 'a stage and the later ones that use its value, such as "0>3" or "0>2+3:4MiB,1>2"',
    help: "values that go beyond the next stage; compare, search: between D parts of the model",
  },
  "skip-send": {
    kind: "own",
    value: "T",
    read: readCost,
    must: "a number from 0, or one for each skip edge with commas between them",
    otherwise: "as --send",
    help: "time of a message over a skip edge; T,T,... for each of them",
  },
} as const;

/** `0>3,1>2`, each with any number of users and with bytes: `0>2+3:4MiB`. */
function readEdges(text: string): readonly SkipEdge[] | undefined {
  const edges = text.split(",").map(readEdge);
  return edges.every((edge) => edge !== undefined) ? edges : undefined;
}

function readEdge(text: string): SkipEdge | undefined {
  const [, from, to, size] = /^(\d{1,9})>(\d{1,9}(?:\+\d{1,9})*)(?::(.+))?$/.exec(text) ?? [];
  if (from === undefined || to === undefined) return undefined;
  const edge = { from: Number(from), to: to.split("+").map(Number) };
  if (size === undefined) return edge;
  const bytes = readSize(size);
  return bytes === undefined ? undefined : { ...edge, bytes };
}
