/**
 * What a flag is: declared once, for the parser, the help, completion and configuration files.
 *
 * @module
 */

/** One flag. */
export interface Flag {
  /**
   * What its values are. A path is taken from nobody but the user who types it, and so is a part
   * that is none of `choices`: it names a module to be run.
   */
  readonly kind: "integer" | "number" | "text" | "path" | "choice" | "part" | "switch" | "own";
  /** What stands for the value in the help: `N`, `FILE`. */
  readonly value?: string;
  /** What it does, in a few words. */
  readonly help: string;
  /** Other names: a letter (`h`), or what other programs call exactly the same thing. */
  readonly aliases?: readonly FlagAlias[];
  /** Its name in earlier versions, which is still read. */
  readonly formerly?: string;
  /** Values of a choice; with `read` the usual ones; parts that come with Troupe. */
  readonly choices?: readonly string[];
  /** Reads a value of its own kind, or of a choice that takes others too; undefined for what is none. */
  readonly read?: (text: string) => unknown;
  /** What a value of its own kind must be, in words. */
  readonly must?: string;
  /** Lowest value of a number; integers start at 1 unless said otherwise. */
  readonly minimum?: number;
  /** Highest value of a number; {@linkcode INTEGER_MAX} for integers unless said otherwise. */
  readonly maximum?: number;
  /** A number must stay below this. */
  readonly below?: number;
  /** The value where none is given. */
  readonly default?: number | string;
  /** What is done where none is given, in words, if that is no value. */
  readonly otherwise?: string;
}

/** Another name of a flag, or a switch that stands for one value of it: `fp16` for a precision. */
export type FlagAlias = string | { readonly name: string; readonly means: string };

/** No count of anything is higher: beyond it, sizes overflow before they are allocated. */
export const INTEGER_MAX = 2 ** 31 - 1;

/** Flags by name, without the dashes. */
export type Flags = Readonly<Record<string, Flag>>;

/** The name of a flag today, of a name that may be one of earlier versions. */
export const currentName = (name: string, flags: Flags): string =>
  Object.keys(flags).find((one) => flags[one]!.formerly === name) ?? name;

/** The type of a flag's values. */
export type ValueOf<F extends Flag> = F extends { kind: "integer" | "number" } ? number
  : F extends { kind: "switch" } ? boolean
  : F extends { kind: "choice"; choices: readonly (infer C)[] } ? C
  : F extends { kind: "own"; read: (text: string) => infer V } ? Exclude<V, undefined>
  : string;

/** The values of the flags that were given, by name. */
export type GivenFlags<T extends Flags> = { readonly [K in keyof T]?: ValueOf<T[K]> };

/** The values of all flags: those without a default may be absent. */
export type FlagValues<T extends Flags> =
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? K : never]: ValueOf<T[K]> }
  & { readonly [K in keyof T as T[K] extends { default: unknown } ? never : K]?: ValueOf<T[K]> };

/**
 * Fills in what was not given: from `given`, else from the flags' defaults.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { withDefaults } from "@troupe/troupe/cli";
 *
 * const flags = { steps: { kind: "integer", default: 300, help: "optimizer steps" } } as const;
 * assert.equal(withDefaults(flags, {}).steps, 300);
 * assert.equal(withDefaults(flags, { steps: 40 }).steps, 40);
 * ```
 */
export function withDefaults<const T extends Flags>(
  flags: T,
  given: GivenFlags<T>,
): FlagValues<T> {
  const defaults = Object.entries(flags).flatMap(([name, { default: value }]) =>
    value === undefined ? [] : [[name, value]]
  );
  return { ...Object.fromEntries(defaults), ...given } as FlagValues<T>;
}
