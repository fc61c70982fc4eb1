/**
 * The parts that come with Troupe: found by name like all others, and replaced like them.
 *
 * @module
 */

import type { Part, PartKind } from "./part.ts";

const part = (kind: PartKind, name: string, file: string, exported: string): Part => ({
  name,
  kind,
  from: import.meta.resolve(file),
  export: exported,
  isBuiltIn: true,
});

/** All of them. */
export const BUILT_IN_PARTS: readonly Part[] = [
  part("model", "gpt", "../parts/built_in/gpt.ts", "gptModel"),
  part("model", "llama", "../parts/built_in/llama.ts", "llamaModel"),
  part("model", "mlp", "../parts/built_in/mlp.ts", "mlpModel"),
  part("model", "resnet", "../parts/built_in/resnet.ts", "resnetModel"),
  part("model", "t5", "../parts/built_in/t5.ts", "t5Model"),
  part("model", "unet", "../parts/built_in/unet.ts", "unetModel"),
  part("data", "mnist", "../parts/built_in/digits.ts", "mnist"),
  part("data", "moby-dick", "../parts/built_in/texts.ts", "mobyDick"),
  part("data", "noisy-mnist", "../parts/built_in/digits.ts", "noisy"),
  part("data", "reverse", "../parts/built_in/strings.ts", "reverse"),
  part("data", "sort", "../parts/built_in/strings.ts", "sort"),
  part("data", "sotu", "../parts/built_in/texts.ts", "sotu"),
  part("data", "text", "../parts/built_in/texts.ts", "text"),
  part("data", "tokens", "../parts/built_in/texts.ts", "tokens"),
  part("optimizer", "adamw", "../parts/built_in/optimizers.ts", "adamw"),
  part("optimizer", "sgd", "../parts/built_in/optimizers.ts", "sgd"),
  part("supervisor", "pipeline", "../parts/built_in/supervisors.ts", "supervisor"),
];

/** The names of those of a kind. */
export const builtInNames = (kind: PartKind): readonly string[] =>
  BUILT_IN_PARTS.filter((one) => one.kind === kind).map(({ name }) => name);
