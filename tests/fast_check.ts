/**
 * Property tests with a fixed seed: the tests of a commit give the same result everywhere. The
 * environment variable `TROUPE_SEED` takes another one; a failure prints the seed and the path.
 */

import fc from "fast-check";

fc.configureGlobal({ seed: Number(Deno.env.get("TROUPE_SEED") ?? 1) });

export default fc;

/** Holds a property for values that are drawn this many times; the test must await the end. */
export function forAll<T extends unknown[]>(
  numRuns: number,
  values: { [K in keyof T]: fc.Arbitrary<T[K]> },
  holds: (...values: T) => void | Promise<void>,
): Promise<void> {
  const all = fc.tuple(...values as fc.Arbitrary<unknown>[]) as fc.Arbitrary<T>;
  return fc.assert(fc.asyncProperty(all, async (drawn) => await holds(...drawn)), { numRuns });
}
