/**
 * The names of an ONNX file, which messages, files and reports show.
 *
 * @module
 */

import type { GraphProto } from "../../onnx/onnx_pb.ts";

/** Characters of a name. */
const LENGTH_MAX = 500;

/** What would end a line, move the cursor or turn the direction of writing. */
const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u;

/**
 * Refuses names that cannot be shown as they are.
 *
 * @throws {TypeError} with the beginning of the first one.
 */
export function checkNames({ node, initializer, input, output }: GraphProto): void {
  for (const { name, opType, domain, input, output, attribute } of node) {
    check("the names of nodes", [name, opType, domain, ...input, ...output]);
    check("the names of attributes", attribute.map((one) => one.name));
  }
  check("the names of initializers", initializer.map(({ name }) => name));
  check("the names of inputs and outputs", [...input, ...output].map(({ name }) => name));
  const dims = input.flatMap(({ type }) =>
    type?.value.case === "tensorType" ? type.value.value.shape?.dim ?? [] : []
  );
  check(
    "the names of sizes",
    dims.map(({ value }) => value.case === "dimParam" ? value.value : ""),
  );
}

function check(what: string, names: readonly (string | undefined)[]): void {
  const bad = names.find((name = "") => name.length > LENGTH_MAX || UNSAFE.test(name));
  if (bad === undefined) return;
  const shown = bad.slice(0, 100).replace(new RegExp(UNSAFE, "gu"), "\ufffd");
  throw new TypeError(
    `Cannot import the ONNX model: ${what} must have at most ${LENGTH_MAX} characters, and none that controls how text is shown, received "${shown}"`,
  );
}
