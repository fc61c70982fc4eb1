/**
 * Writes `docs/ops.md`, the list of operations, from their tables.
 *
 * @module
 */

import { execFileSync } from "node:child_process";
import { KNOWN_OPS } from "../kernels/onnx/fold.ts";
import type { Ops } from "../kernels/ops/op.ts";
import { FAMILIES, GRADIENTS, isFlat, OPS } from "../kernels/ops/table.ts";

/** Returns the operations that are read from ONNX files. */
const readable = (ops: Ops) => Object.keys(ops).filter((op) => ops[op]!.read);

const listed = (names: readonly string[]) =>
  names.toSorted((a, b) => a.localeCompare(b, "en")).map((name) => `\`${name}\``).join(", ");

/** Returns the text of the page. */
export function opsPage(): string {
  const all = readable(OPS);
  const rows = Object.entries(FAMILIES).map(([family, ops]) =>
    `- ${family}: ${listed(readable(ops).filter((op) => !isFlat(op)))}.`
  );
  const inside = listed(Object.keys(GRADIENTS).filter((op) => !isFlat(op) && !all.includes(op)));
  const flat = listed(all.filter(isFlat));
  return formatted(`# Operations

The operations of models. \`deno task docs\` writes this page from the records in
[kernels/ops/](../kernels/ops/table.ts).

## In ONNX files, with a gradient

A file may have these operations between its weights and its loss.

${rows.join("\n")}

## In ONNX files, without a gradient

The gradient ends at these operations, whose results are steps, integers or booleans: ${flat}.

These are computed before a run, like all operations on constants: ${listed(KNOWN_OPS)}.

Any other operation is refused with its name and that of its node.

## In layers

Layers use the methods of \`Graph\`
([kernels/ops/builder.ts](../kernels/ops/builder.ts)). Nodes that exist only there have gradients, too: ${inside}.

A number as an operand of arithmetic, a comparison or a choice becomes a constant with the type of the other operand: \`g.mul(x, 2)\`. When a model is compiled, a parameter is refused if all its paths to the loss pass through operations without a gradient. \`g.stopGradient(x)\` ends a gradient on purpose: a parameter without another path is not trained, like a frozen one.

## On devices

\`reference\`, \`native\` and \`wasm\` compute all operations. \`webgpu\` has no kernel for \`Mod\`, nor one for \`Transpose\` of 64-bit integers: a layer that needs one is refused by name.
`);
}

/** Formats Markdown with `deno fmt`. */
function formatted(input: string): string {
  const args = ["fmt", "--quiet", "--line-width=100", "--ext=md", "-"];
  return execFileSync(Deno.execPath(), args, { input, encoding: "utf8" });
}
