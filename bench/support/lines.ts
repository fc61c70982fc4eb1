/**
 * Text line by line, as a program and who has started it talk to each other.
 *
 * @module
 */

/** The lines of a stream of bytes. */
export async function* linesOf(bytes: ReadableStream<Uint8Array<ArrayBuffer>>) {
  let rest = "";
  for await (const text of bytes.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
}

/** Answers the questions of who has started this program, a line each, until there are no more. */
export async function answer(
  questions: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  for await (const line of linesOf(Deno.stdin.readable)) {
    const found = JSON.stringify(await questions[line]!());
    await Deno.stdout.write(new TextEncoder().encode(`${found}\n`));
  }
}

/** Questions to a program. */
export interface Conversation {
  /** What it answers. @throws {Error} when it has ended. */
  ask<T>(question: string): Promise<T>;
  /** Lets it end. */
  close(): Promise<void>;
}

/** Asks a program whose standard input and output are piped. */
export function talkTo(child: Deno.ChildProcess): Conversation {
  const writer = child.stdin.getWriter(), lines = linesOf(child.stdout);
  return {
    async ask<T>(question: string) {
      await writer.write(new TextEncoder().encode(`${question}\n`)).catch(() => {});
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`the program has ended at "${question}"`);
      return JSON.parse(value) as T;
    },
    async close() {
      await writer.close().catch(() => {});
      await child.status;
      await lines.return();
    },
  };
}
