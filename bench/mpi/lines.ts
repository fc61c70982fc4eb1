/**
 * Text line by line, as a job and who has started it talk to each other.
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

/** Answers the questions of who has started this rank, a line each, until there are no more. */
export async function answer(
  questions: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  for await (const line of linesOf(Deno.stdin.readable)) {
    const found = JSON.stringify(await questions[line]!());
    await Deno.stdout.write(new TextEncoder().encode(`${found}\n`));
  }
}
