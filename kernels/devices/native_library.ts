/**
 * Finds ONNX Runtime's C library, which npm's onnxruntime-node carries, and fetches it when absent.
 *
 * The package is 290 MB, so nothing imports it: only who wants the native device pays for it.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { npmPackageFolder } from "../npm_package.ts";

const PACKAGE = { name: "onnxruntime-node", version: "1.30.0", megabytes: 290 };

/** The library within the package, by `Deno.build.os` and `Deno.build.arch`. */
const LIBRARIES: Readonly<Record<string, string>> = {
  "linux-x86_64": "linux/x64/libonnxruntime.so.1",
  "linux-aarch64": "linux/arm64/libonnxruntime.so.1",
  "darwin-aarch64": "darwin/arm64/libonnxruntime.1.30.0.dylib",
  "windows-x86_64": "win32/x64/onnxruntime.dll",
  "windows-aarch64": "win32/arm64/onnxruntime.dll",
};

let found: Promise<string> | undefined;

/**
 * The path of the native ONNX Runtime library on this machine. The first call in an isolate starts
 * a child process; pass its result to workers as the `library` option instead of asking again.
 *
 * @param announce receives one line before a download starts.
 * @throws {Error} when the package carries no library for this platform or cannot be fetched.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { nativeLibraryPath } from "@troupe/troupe/kernels";
 *
 * const library = await nativeLibraryPath();
 * assert.ok((await Deno.stat(library)).isFile);
 * assert.equal(await nativeLibraryPath(), library);
 * ```
 */
export function nativeLibraryPath(announce: (line: string) => void = () => {}): Promise<string> {
  found ??= findLibrary(announce).catch((error) => {
    found = undefined;
    throw error;
  });
  return found;
}

async function findLibrary(announce: (line: string) => void): Promise<string> {
  const platform = `${Deno.build.os}-${Deno.build.arch}`;
  const library = LIBRARIES[platform];
  if (library === undefined) {
    throw new Error(
      `Cannot load ONNX Runtime: the platform must be one of ${
        Object.keys(LIBRARIES).join(", ")
      }, received ${platform}`,
    );
  }
  const folder = await npmPackageFolder(PACKAGE, announce);
  return fileURLToPath(new URL(`bin/napi-v6/${library}`, folder));
}
