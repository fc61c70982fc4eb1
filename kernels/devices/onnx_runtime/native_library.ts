/**
 * Finds ONNX Runtime's C library, which npm's onnxruntime-node carries, and fetches it when absent.
 *
 * The package is 290 MB, so nothing imports it: only who wants the native device pays for it.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { type PinnedFiles, pinnedPackage } from "../../files/pinned_files.ts";
import { ORT_VERSION } from "./version.ts";

const PACKAGE = { name: "onnxruntime-node", version: ORT_VERSION, megabytes: 290 };

/** A library within the package, and all that the system may load because of it. */
interface Library extends PinnedFiles {
  readonly file: string;
}

/** Libraries beside this one go before those of the system, so none may be added. */
const LINUX = { file: "libonnxruntime.so.1", files: /\.so(\.\d+)*$/ };
const WINDOWS = { file: "onnxruntime.dll", files: /\.dll$/i };

/** By `Deno.build.os` and `Deno.build.arch`. */
const LIBRARIES: Readonly<Record<string, Library>> = {
  "linux-x86_64": {
    ...LINUX,
    folder: "bin/napi-v6/linux/x64/",
    sha256: "a4f7066866ff247ce32869f488ecc6e383452adf872f39170c7944c70dd98bfc",
  },
  "linux-aarch64": {
    ...LINUX,
    folder: "bin/napi-v6/linux/arm64/",
    sha256: "ca4788448e45705971e29f4076ec0ff820a115ca6b95b675a5a2d0766a3e884d",
  },
  "darwin-aarch64": {
    file: "libonnxruntime.1.30.0.dylib",
    files: /^libonnxruntime\.1\.30\.0\.dylib$/,
    folder: "bin/napi-v6/darwin/arm64/",
    sha256: "b6143db40887b281f5dbd8431c490775abcdc93f42fe5fb59d601954dde5f54a",
  },
  "windows-x86_64": {
    ...WINDOWS,
    folder: "bin/napi-v6/win32/x64/",
    sha256: "ddf7e2bbcf4aef7e53fd9562926238dd335a555af6f0af13ffcbd09b981ef022",
  },
  "windows-aarch64": {
    ...WINDOWS,
    folder: "bin/napi-v6/win32/arm64/",
    sha256: "37c9e40c21d6e560bda19c52dd1a0f9e9fa69b4a1ce24d7673a0dda0b889221b",
  },
};

let found: Promise<string> | undefined;

/**
 * The path of the native ONNX Runtime library on this machine. The first call in an isolate starts
 * a child process and reads the whole library; pass its result to workers as the `library` option instead of asking again.
 *
 * @param announce receives one line before a download starts.
 * @throws {Error} when the package carries no library for this platform, cannot be fetched, or is
 * not what it was when it was pinned.
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
  const { folder } = await pinnedPackage({ ...PACKAGE, ...library }, announce);
  return fileURLToPath(new URL(library.file, folder));
}
