/**
 * The parts that come with Troupe: found by name like all others, and replaced like them.
 *
 * @module
 */

import type { Part, PartKind } from "./part.ts";

const part = (kind: PartKind, name: string, file: string, exported: string = kind): Part => ({
  name,
  kind,
  from: import.meta.resolve(`../parts/built_in/${file}.ts`),
  export: exported,
  isBuiltIn: true,
});

/** All of them. */
export const BUILT_IN_PARTS: readonly Part[] = [
  part("model", "gpt", "gpt"),
  part("model", "llama", "llama"),
  part("model", "mlp", "mlp"),
  part("model", "resnet", "resnet"),
  part("model", "t5", "t5"),
  part("model", "unet", "unet"),
  part("data", "mnist", "digits"),
  part("data", "moby-dick", "texts", "mobyDick"),
  part("data", "noisy-mnist", "digits", "noisy"),
  part("data", "reverse", "strings", "reverse"),
  part("data", "sort", "strings", "sort"),
  part("data", "sotu", "texts", "sotu"),
  part("data", "text", "texts", "text"),
  part("data", "tokens", "texts", "tokens"),
  part("optimizer", "adamw", "optimizers", "adamw"),
  part("optimizer", "sgd", "optimizers", "sgd"),
  part("supervisor", "pipeline", "supervisors"),
];

/** The names of those of a kind. */
export const builtInNames = (kind: PartKind): readonly string[] =>
  BUILT_IN_PARTS.filter((one) => one.kind === kind).map(({ name }) => name);
