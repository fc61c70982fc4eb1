/**
 * `docs/ops.md`: the operations that can be trained through, from the tables that know them.
 *
 * @module
 */

import { KNOWN_OPS } from "../kernels/onnx/fold.ts";
import type { Ops } from "../kernels/ops/op.ts";
import { FAMILIES, GRADIENTS, isFlat, OPS } from "../kernels/ops/table.ts";

/** Those that ONNX files may have. */
const readable = (ops: Ops) => Object.keys(ops).filter((op) => ops[op]!.read);

const listed = (names: readonly string[]) =>
  names.toSorted((a, b) => a.localeCompare(b, "en")).map((name) => `\`${name}\``).join(", ");

/** The text of the page, as `deno fmt` writes it. */
export async function opsPage(): Promise<string> {
  const all = readable(OPS);
  const rows = Object.entries(FAMILIES).map(([family, ops]) =>
    `- ${family}: ${listed(readable(ops).filter((op) => !isFlat(op)))}.`
  );
  const inside = Object.keys(GRADIENTS).filter((op) => !isFlat(op) && !all.includes(op));
  return await formatted(`# Operations

The operations of models. \`deno task docs\` writes this page from the records in
[kernels/ops/](../kernels/ops/table.ts).

## Of ONNX files, with a gradient

A file may have any of them between its weights and its loss.

${rows.join("\n")}

## Of ONNX files, without one

They are computed, and nothing is trained through them, as their results are steps, whole numbers or
truths: ${listed(all.filter(isFlat))}.

Known before a run, as shapes are: ${listed(KNOWN_OPS)}, and whatever reads constants only.

Any other operation is refused by its name and that of its node.

## Of layers

Layers are written with the methods of \`Graph\`
([kernels/ops/builder.ts](../kernels/ops/builder.ts)). The nodes that these add have gradients,
too, where they are not among those of files: ${listed(inside)}.

Where one operand of arithmetic, a comparison or a choice is a number, it becomes a constant of the
type of the other one: \`g.mul(x, 2)\`. A parameter to which no gradient comes, as all of its ways to
the loss lead through steps, whole numbers or truths, is refused when the model is compiled.
\`g.stopGradient(x)\` says that a gradient is to end: a parameter that has no way around it is not
trained, as if it were frozen.

## On devices

\`reference\`, \`native\` and \`wasm\` compute all of them. \`webgpu\` has no kernel for \`Mod\`, and for
\`Transpose\` of 64-bit whole numbers: a layer that needs one is refused by its name.
`);
}

/** A text as \`deno fmt\` writes it. */
async function formatted(text: string): Promise<string> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["fmt", "--quiet", "--line-width=100", "--ext=md", "-"],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(text));
  await writer.close();
  return new TextDecoder().decode((await child.output()).stdout);
}
