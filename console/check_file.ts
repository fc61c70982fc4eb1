/**
 * Files that flags name: there, regular, and not too large.
 *
 * @module
 */

import { inputFileProblem } from "../kernels/mod.ts";
import { quoted } from "./escape.ts";

/**
 * Refuses what a flag cannot read: what is not there, no regular file, or too large.
 *
 * @throws {TypeError} naming the flag.
 */
export function checkFile(flag: string, path: string, bytesMax?: number): void {
  const problem = inputFileProblem(path, bytesMax);
  if (problem === undefined) return;
  throw new TypeError(
    `Cannot use --${flag}: it must name a file that can be read, received ${
      quoted(path)
    } (${problem})`,
  );
}
