/**
 * What a model generates, printed as it comes.
 *
 * @module
 */

import { type TextStream, textStream, type Tokenizer } from "../../kernels/mod.ts";
import { escapeControls } from "../escape.ts";
import { writeAll } from "../print.ts";

/** What is printed. */
export interface PrintedTokens {
  /** The ids to go on from. */
  readonly prompt: readonly number[];
  /** The ids that are added. */
  readonly added: AsyncIterable<number>;
  /** What makes text of them; without it ids are printed, with commas between. */
  readonly tokenizer: Tokenizer | undefined;
}

/**
 * Prints tokens to standard output, each as soon as it is there, and a line's end. Stops early, and
 * in silence, when the signal is aborted or nobody reads any more.
 */
export async function printTokens(
  { prompt, added, tokenizer }: PrintedTokens,
  signal?: AbortSignal,
): Promise<void> {
  const { push, end } = tokenizer ? textStream(tokenizer) : idStream();
  const write = (text: string) => writeAll(Deno.stdout, escapeControls(text));
  try {
    try {
      write(push(prompt));
      for await (const id of added) {
        write(push([id]));
        if (signal?.aborted) break;
      }
    } finally {
      write(`${end()}\n`);
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

/** Ids as text. */
function idStream(): TextStream {
  let separator = "";
  return {
    push(ids) {
      const text = `${separator}${ids.join(",")}`;
      separator = ",";
      return text;
    },
    end: () => "",
  };
}
