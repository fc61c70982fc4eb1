/**
 * How flags may be spelled: by their names, by aliases, with `_` for `-`.
 *
 * @module
 */

import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import { currentName, type Flags } from "./flag.ts";

/** What a spelling stands for: a flag, or one value of it. */
export interface Spelled {
  /** The flag's name. */
  readonly name: string;
  /** The value that the spelling stands for; absent where one follows. */
  readonly means?: string;
}

/** All spellings of flags, each with `-` for `_`. */
export function spellingsOf(flags: Flags): ReadonlyMap<string, Spelled> {
  const spellings = new Map<string, Spelled>();
  for (const [name, { aliases = [], formerly }] of Object.entries(flags)) {
    spellings.set(name, { name });
    if (formerly !== undefined) spellings.set(formerly, { name });
    for (const alias of aliases) {
      if (typeof alias === "string") spellings.set(dashed(alias), { name });
      else spellings.set(dashed(alias.name), { name, means: alias.means });
    }
  }
  return spellings;
}

/** A name with `-` in the place of `_`: Hugging Face and nanoGPT write the latter. */
export const dashed = (name: string): string => name.replaceAll("_", "-");

/**
 * Arguments with every known flag under its own name, its value joined to it: `-h` becomes `--help`,
 * `--n_layer 4` becomes `--layers=4`, and `--lr -1` becomes `--lr=-1`, as a value that starts with a
 * dash would be read as a flag; `--json=false` becomes `--no-json`. What is none of the flags stays
 * as it is.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert/strict";
 *
 * const layers = { kind: "integer", aliases: ["n_layer"], help: "transformer blocks" } as const;
 * const precision = {
 *   kind: "choice",
 *   choices: ["fp32", "fp16"],
 *   aliases: [{ name: "fp16", means: "fp16" }],
 *   help: "how weights are stored",
 * } as const;
 * deepStrictEqual(
 *   respell(["--n_layer", "4", "--fp16", "--other", "-1"], { layers, precision }),
 *   ["--layers=4", "--precision=fp16", "--other", "-1"],
 * );
 * ```
 */
export function respell(args: readonly string[], flags: Flags): string[] {
  const spellings = spellingsOf(flags), end = args.indexOf("--");
  let respelled: string[] = [];
  const last = end < 0 ? args.length : end;
  for (let i = 0; i < last; i++) {
    const found = findFlag(args[i]!, spellings, flags);
    if (!found) {
      respelled.push(args[i]!);
      continue;
    }
    const { name, means, isTakenBack, value } = found, next = i + 1 < last ? args[i + 1]! : "--";
    if (means !== undefined) {
      const given = `--${name}=${means}`;
      if (value === "=false") respelled = respelled.filter((argument) => argument !== given);
      else respelled.push(/^(=true)?$/.test(value) ? given : `--${name}${value}`);
    } else if (flags[name]!.kind === "switch") {
      const said = value === "" && /^(true|false)$/.test(next) ? `=${args[++i]}` : value;
      if (isTakenBack || said === "=false") respelled.push(`--no-${name}`);
      else respelled.push(`--${name}${said === "=true" ? "" : said}`);
    } else if (value !== "" || next.startsWith("--")) respelled.push(`--${name}${value}`);
    else respelled.push(`--${name}=${args[++i]}`);
  }
  return [...respelled, ...args.slice(last)];
}

/** The flag that an argument names, with the value that is joined to it: `=4`, or nothing. */
function findFlag(argument: string, spellings: ReadonlyMap<string, Spelled>, flags: Flags) {
  const parts = /^(--|-(?=[^-](?:=|$)))([^=]+)(=.*)?$/s.exec(argument);
  if (!parts) return undefined;
  const name = dashed(parts[2]!), value = parts[3] ?? "";
  const found = spellings.get(name);
  if (found) return { ...found, value, isTakenBack: false };
  const back = name.startsWith("no-") && value === "" ? spellings.get(name.slice(3)) : undefined;
  if (!back || back.means !== undefined || flags[back.name]!.kind !== "switch") return undefined;
  return { ...back, value, isTakenBack: true };
}

/** What was probably meant, as the end of a sentence; empty where nothing is near. */
export function meantFlag(name: string, flags: Flags): string {
  const known = [...spellingsOf(flags).keys()]
    .filter((one) => one.length > 1 && currentName(one, flags) === one);
  return didYouMean(`--${dashed(name)}`, known.map((one) => `--${one}`));
}
