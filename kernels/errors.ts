/**
 * Errors of somebody's code, told with what was being done.
 *
 * @module
 */

/**
 * An error of the same built-in class that says what could not be done, and then why.
 *
 * @param cannot such as `Cannot build the layer "dense 2"`.
 * @param explain what is said of the mistake, given what it says itself.
 */
export function nameError(
  cannot: string,
  cause: unknown,
  explain: (told: string) => string = (told) => told,
): Error {
  const Kind = [RangeError, TypeError, SyntaxError].find((one) => cause instanceof one) ?? Error;
  const told = cause instanceof Error ? cause.message : String(cause);
  return new Kind(`${cannot}: ${explain(told.replace(/^Cannot /, "cannot "))}`, { cause });
}
