/**
 * Files of text that may be a stranger's to read, and are whole when somebody else reads them.
 *
 * @module
 */

import { dirname } from "node:path";
import { existsSync, readFileSync } from "node:fs";
import { checkInputFile, decodeText } from "../../kernels/mod.ts";

/**
 * The text of a file that is there.
 *
 * @throws {TypeError} when it is no regular file, too large, or no text.
 */
export function readText(path: string, bytesMax: number): string | undefined {
  if (!existsSync(path)) return undefined;
  checkInputFile(path, bytesMax);
  return decodeText(readFileSync(path), path).replace(/^\uFEFF/, "");
}

/**
 * Waits until no other program changes files in the folder of this one. Its end, whatever it dies of,
 * lets the next one in. Windows opens no folders, and has nobody wait.
 */
export async function holdFolder(path: string): Promise<Disposable> {
  if (Deno.build.os === "windows") return { [Symbol.dispose]() {} };
  const folder = await Deno.open(dirname(path));
  await folder.lock(true);
  return folder;
}

/** Writes a file: whoever reads it meanwhile finds the old text or the new one. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const real = await Deno.realPath(path).catch(() => path);
  const temporary = `${real}.${crypto.randomUUID()}.tmp`, bytes = new TextEncoder().encode(text);
  const { mode } = await Deno.stat(real).catch(() => ({ mode: null }));
  try {
    using file = await Deno.open(temporary, {
      ...{ write: true, createNew: true },
      ...mode !== null && { mode: mode & 0o777 },
    });
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.syncData();
    await Deno.rename(temporary, real);
  } catch (error) {
    await Deno.remove(temporary).catch(() => {});
    throw error;
  }
}
