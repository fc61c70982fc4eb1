/**
 * The end of what has been opened: all of it ends, whatever fails meanwhile.
 *
 * @module
 */

/**
 * Ends one thing after the other, also when some of them fail.
 *
 * @param errors what has failed before, the first of it first.
 * @throws the first error of all; the later ones are its `suppressed`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const ended: string[] = [];
 * const first = new Error("the run failed"), second = new Error("the file was gone");
 * const ending = endAll([first], [() => Promise.reject(second), () => void ended.push("workers")]);
 * await assert.rejects(ending, (error) => error === first);
 * assert.deepEqual(Object.assign({}, first), { suppressed: [second] });
 * assert.deepEqual(ended, ["workers"]);
 * ```
 */
export async function endAll(
  errors: readonly unknown[],
  ends: readonly (() => unknown)[],
): Promise<void> {
  const all = [...errors];
  for (const end of ends) {
    try {
      await end();
    } catch (error) {
      all.push(error);
    }
  }
  if (all.length === 0) return;
  const [first, ...suppressed] = all;
  if (suppressed.length > 0 && first instanceof Error && Object.isExtensible(first)) {
    Object.assign(first, { suppressed });
  }
  throw first;
}
