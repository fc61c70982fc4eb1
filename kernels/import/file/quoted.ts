/**
 * Words of a stranger's file in messages: escaped, and no longer than is good for a reader.
 *
 * @module
 */

/** The most characters that are shown of what a file says. */
const SHOWN_MAX = 120;

/** The most names that are listed. */
const NAMES_MAX = 20;

/** What a file says, in quotes. */
export const quoted = (text: string): string =>
  JSON.stringify(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);

/** The same without quotes. */
export const shown = (text: string): string => quoted(text).slice(1, -1);

/** Some names, without quotes. */
export const listed = (names: Iterable<string>): string =>
  Array.from(names, shown).slice(0, NAMES_MAX).join(", ");
