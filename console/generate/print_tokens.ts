/**
 * What a model generates, printed as it comes.
 *
 * @module
 */

import { type TextStream, textStream } from "../../kernels/mod.ts";
import { escapeControls } from "../escape.ts";
import { writeAll } from "../print.ts";

/** What is printed. */
export interface PrintedTokens {
  /** The ids to go on from. */
  readonly prompt: readonly number[];
  /** The ids that are added. */
  readonly added: AsyncIterable<number>;
  /** What makes text of them; without it ids are printed, with commas between. */
  readonly tokenizer: Parameters<typeof textStream>[0] | undefined;
}

/**
 * Prints tokens to standard output, each as soon as it is there, and a line's end. Stops early, and
 * in silence, when the signal is aborted.
 */
export async function printTokens(
  { prompt, added, tokenizer }: PrintedTokens,
  signal?: AbortSignal,
): Promise<void> {
  const { push, end } = tokenizer ? textStream(tokenizer) : idStream();
  // A tokenizer may take long, and is not waited for once the signal is aborted.
  const { promise: stopped, resolve: stop } = Promise.withResolvers<string>();
  signal?.addEventListener("abort", () => stop(""));
  const write = async (text: Promise<string>) =>
    writeAll(Deno.stdout, escapeControls(await Promise.race([text, stopped])));
  try {
    await write(push(prompt));
    for await (const id of added) {
      await write(push([id]));
      if (signal?.aborted) break;
    }
    await write(end());
  } finally {
    writeAll(Deno.stdout, "\n");
  }
}

/** Ids as text. */
function idStream(): TextStream {
  let separator = "";
  return {
    push(ids) {
      const text = `${separator}${ids.join(",")}`;
      separator = ",";
      return Promise.resolve(text);
    },
    end: () => Promise.resolve(""),
  };
}
