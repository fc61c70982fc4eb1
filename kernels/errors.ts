/**
 * Errors of input that is refused, and of user code.
 *
 * @module
 */

/**
 * Returns an error of the same built-in class whose message starts with the operation that failed.
 *
 * @param cannot such as `Cannot build the layer "dense 2"`.
 * @param explain rewrites the message of the cause.
 */
export function nameError(
  cannot: string,
  cause: unknown,
  explain: (message: string) => string = (message) => message,
): Error {
  const Kind = [RangeError, TypeError, SyntaxError].find((one) => cause instanceof one) ?? Error;
  const message = cause instanceof Error ? cause.message : String(cause);
  return new Kind(`${cannot}: ${explain(message.replace(/^Cannot /, "cannot "))}`, { cause });
}

/**
 * Returns the result of a function.
 *
 * @throws the error that {@linkcode nameError} makes of the function's.
 */
export function nameErrors<T>(
  cannot: string,
  run: () => T,
  explain?: Parameters<typeof nameError>[2],
): T {
  try {
    return run();
  } catch (cause) {
    throw nameError(cannot, cause, explain);
  }
}

/**
 * Returns an error of input that is refused: "Cannot X: Y must be Z, received V".
 *
 * @param received of an error the message is shown; it is the cause.
 */
export function refusal(
  cannot: string,
  must: string,
  received: unknown,
  Kind: ErrorConstructor = RangeError,
): Error {
  const cause = received instanceof Error ? { cause: received } : undefined;
  const what = cause ? cause.cause.message : shown(received);
  return new Kind(`Cannot ${cannot}: ${must}, received ${what}`, cause);
}

/** Maximum number of characters of a record in a message. */
const RECORD_MAX = 80;

/** Returns a value as a message shows it: a record as JSON. */
function shown(value: unknown): string {
  const plain = String({}), text = resultOr(() => String(value), plain);
  return text === plain ? resultOr(() => JSON.stringify(value).slice(0, RECORD_MAX), text) : text;
}

/** Returns the result of a function; `otherwise` if it throws, whatever it throws. */
export function resultOr<T, O>(run: () => T, otherwise: O): T | O {
  try {
    return run();
  } catch {
    return otherwise;
  }
}

/**
 * Checks that values are positive integers.
 *
 * @throws {RangeError} with the name of the first that is not.
 */
export function checkPositive(cannot: string, values: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(values)) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw refusal(cannot, `${name} must be a positive integer`, value);
  }
}

/**
 * Throws if there are other options than the known ones, which would have no effect.
 *
 * @throws {TypeError} with the name of the first.
 */
export function checkOptionNames(cannot: string, others: object, known: string): void {
  const [other] = Object.keys(others);
  assertInput(other === undefined, cannot, `its options must be among ${known}`, other, TypeError);
}

/**
 * Throws {@linkcode refusal} unless a condition holds.
 *
 * @throws {RangeError} or an error of another `Kind`.
 */
export function assertInput(
  holds: boolean,
  cannot: string,
  must: string,
  received: unknown,
  Kind?: ErrorConstructor,
): asserts holds {
  if (!holds) throw refusal(cannot, must, received, Kind);
}
