/** Compares refusals of calls with `tests/golden/refusals`. */

import { assertSentences, type Places } from "../../console/refusals.ts";

/** A call that must be refused, with a title; for a function, as for a call alone, its source. */
export type Refused = readonly [about: unknown, call: () => unknown] | (() => unknown);

async function sentenceOf(call: () => unknown): Promise<string> {
  try {
    await call();
    return "It is not refused.";
  } catch (error) {
    return `${error}`;
  }
}

const textOf = (about: unknown) =>
  typeof about === "string"
    ? about
    : typeof about === "function"
    ? `${about}`.replaceAll(/\s+/g, " ")
    : Deno.inspect(about, { breakLength: Infinity });

/** Compares the errors of calls with `tests/golden/refusals/NAME.txt`. */
export async function assertRefused(name: string, all: Iterable<Refused>, places: Places = {}) {
  const sentences: [string, string][] = [];
  for (const one of all) {
    const [about, call] = typeof one === "function" ? [one, one] : one;
    sentences.push([textOf(about), await sentenceOf(call)]);
  }
  await assertSentences(name, sentences, places);
}
