/**
 * Whether checkpoints can be written, found out before a run spends hours on them.
 *
 * @module
 */

import { dirname, resolve } from "node:path";

/**
 * What a checkpoint will keep of a configuration, so that it is no surprise at the end of a run.
 *
 * @throws {TypeError} when JSON cannot say it, or says no object.
 */
export function encodeConfig(
  config: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const refuse = "Cannot write checkpoints: their config must be an object that JSON can say";
  let text: string | undefined;
  try {
    text = JSON.stringify(config);
  } catch (cause) {
    const [why] = (cause as Error).message.split("\n");
    throw new TypeError(`${refuse}, received one that it cannot (${why})`, { cause });
  }
  if (text?.startsWith("{")) return JSON.parse(text);
  throw new TypeError(`${refuse}, received ${text}`);
}

/**
 * Makes sure that checkpoints can be written to a directory, before a run spends hours on them, and
 * leaves nothing there: the directory itself is made with its first checkpoint.
 *
 * @throws {RangeError} saying what is in the way.
 */
export async function checkWritable(directory: string): Promise<void> {
  try {
    const folder = await existingFolder(directory);
    await Deno.remove(await Deno.makeTempFile({ dir: folder, prefix: ".writable-" }));
  } catch (cause) {
    throw new RangeError(
      `Cannot write checkpoints to ${directory}: it must be a folder that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

/** The folder, or where there is none yet, the nearest above it. */
async function existingFolder(path: string): Promise<string> {
  try {
    await Deno.stat(path);
    return path;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    const there = await Deno.lstat(path).catch(() => undefined);
    // A link to nothing is in the way of a folder, too; anything else was made by another run just now.
    if (there?.isSymlink) throw error;
    return await existingFolder(there ? path : dirname(resolve(path)));
  }
}
