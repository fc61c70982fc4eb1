/**
 * What a run takes from the checkpoint from which it goes on. A checkpoint may be a stranger's: its
 * flags are those of the model and of learning, checked as if they were typed, and no path.
 *
 * @module
 */

import type { Checkpoint } from "../../actors/checkpoints/mod.ts";
import { inOneLine, quoted } from "../escape.ts";
import { currentName } from "../flags/flag.ts";
import { readKeptFlags } from "../flags/kept.ts";
import { MODEL_FLAGS } from "./flags/model_flags.ts";
import { ONNX_FLAGS } from "./flags/onnx_flags.ts";
import { type GivenTrainFlags, INHERITED_FLAGS } from "./train_flags.ts";

/** What a checkpoint says, whatever it says of tensors. */
type KeptRun = Omit<Checkpoint, "state" | "shapes">;

type Values = Readonly<Record<string, unknown>>;

/**
 * The flags that a run inherits.
 *
 * @param takenBack the switches that it does without.
 * @throws {TypeError} {@linkcode RangeError} when one is none that could be typed, or a switch that
 * is taken back belongs to the model.
 */
export function inheritedFlags(
  { path, config }: KeptRun,
  takenBack: readonly string[],
): GivenTrainFlags {
  const kept: Values = readKeptFlags(config.flags ?? {}, INHERITED_FLAGS, path);
  const fixed = takenBack.find((name) => kept[name] === true && Object.hasOwn(MODEL_FLAGS, name));
  if (fixed !== undefined) {
    throw new RangeError(
      `Cannot resume from ${path}: --${fixed} must be true, as in this checkpoint, received false`,
    );
  }
  return Object.fromEntries(Object.entries(kept).filter(([name]) => !takenBack.includes(name)));
}

/** The flags of a checkpoint that no run inherits, in words; undefined where there are none. */
export function describeNotInherited({ path, config }: KeptRun): string | undefined {
  const data = ["text", "tokens"]; // Troupe 0.1 kept these; they must be named again
  const names = Object.keys(config.flags ?? {}).filter((name) =>
    !Object.hasOwn(INHERITED_FLAGS, currentName(name, INHERITED_FLAGS)) && !data.includes(name)
  );
  if (names.length === 0) return undefined;
  return `${path} says more than a run inherits; passed over: ${
    names.slice(0, 5).map(inOneLine).join(", ")
  }`;
}

/** Refuses another model than the checkpoint's, and a run that would have to go back. */
export function checkResumable(
  { path, step, config }: KeptRun,
  inherited: Values,
  given: Values,
  steps: number,
): void {
  const kept: Values = { ...config, ...inherited };
  for (const name of Object.keys({ ...MODEL_FLAGS, ...ONNX_FLAGS })) {
    if (Object.hasOwn(config.parts ?? {}, name)) continue; // a module, known by its hash
    if (given[name] === undefined || given[name] === kept[name]) continue;
    throw new RangeError(
      `Cannot resume from ${path}: --${name} must be ${
        kept[name] === undefined ? "left out" : inOneLine(String(kept[name]))
      }, as in this checkpoint, received ${given[name]}`,
    );
  }
  if (steps < step) {
    throw new RangeError(
      `Cannot resume from ${path}: --steps must be at least ${step}, the steps of this checkpoint, received ${steps}`,
    );
  }
}

/**
 * Makes sure that the model which the flags make is the one that the checkpoint describes.
 *
 * @param config what rebuilds the model.
 * @throws {RangeError} naming what differs.
 */
export function checkSameModel({ path, config: kept }: KeptRun, config: Values): void {
  for (const [name, value] of Object.entries(config)) {
    if (kept[name] === undefined || kept[name] === value) continue;
    throw new RangeError(
      `Cannot resume from ${path}: its ${name} must be that of its flags, ${value}, received ${
        quoted(kept[name])
      }`,
    );
  }
}
