/**
 * Messages of the command: downloads, and errors of the system with a remedy; and its output files.
 *
 * @module
 */

import { basename, dirname, join } from "node:path";
import { commandLine } from "../actors/options/limits.ts";
import { tryToRemove } from "../actors/checkpoints/lock.ts";
import { duration, hasChangingLines, openStatusLine } from "../actors/run/terminal.ts";
import { type Fetching, refusal, watchFetches } from "../kernels/internal.ts";

export { quoted } from "../actors/options/file_schema.ts";
export {
  evaluationText,
  metricTexts,
  openProgress,
  type Output,
  print,
  printError,
  quietly,
  terminalColumns,
  wrap,
  writeAll,
} from "../actors/run/terminal.ts";
export { escapeControls, inOneLine } from "../actors/runtime/types.ts";

/** Returns a number of things, such as `1 stage` or `1,024 stages`. */
export const count = (n: number, what: string): string =>
  `${n.toLocaleString("en-US")} ${what}${n === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

/** Yields the lines of a stream of bytes; the last one may lack its end. */
export async function* linesOf(
  bytes: ReadableStream<Uint8Array<ArrayBuffer>>,
  signal?: AbortSignal,
): AsyncGenerator<string, void> {
  let rest = "";
  for await (
    const text of bytes.pipeThrough(new TextDecoderStream(), { ...signal && { signal } })
  ) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}

/** Quotes a word for a shell. */
export const quotedForShell = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** Throws a refusal of arguments unless a condition holds. */
export function ensure(
  condition: unknown,
  cannot: string,
  must: string,
  received: unknown = "none",
  Kind: ErrorConstructor = TypeError,
): asserts condition {
  if (!condition) throw refusal(cannot, must, received, Kind);
}

/**
 * Writes a file of `--out`: whole, or not at all. A link is followed, and a device is written directly.
 *
 * @throws {TypeError} when the path is a named pipe, which may have no reader.
 * @throws {Error} of the system, such as for a full disk; the former file stays.
 */
export function writeOutput(path: string, text: string): void {
  let target = path, isThere = false;
  try {
    const { isFifo, isFile } = Deno.statSync(path);
    if (isFifo && !path.startsWith("/dev/")) {
      throw new TypeError(`Cannot write ${path}: it must be a file, received a pipe`);
    }
    if (!isFile) return Deno.writeTextFileSync(path, text);
    [target, isThere] = [Deno.realPathSync(path), true];
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const unfinished = join(dirname(target), `.${basename(target)}-${crypto.randomUUID()}`);
  try {
    Deno.writeTextFileSync(unfinished, text);
    Deno.renameSync(unfinished, target);
  } catch (error) {
    tryToRemove(unfinished);
    const { Busy, PermissionDenied } = Deno.errors;
    // Mounted files, and files in folders that are not writable, cannot be replaced.
    if (isThere && (error instanceof PermissionDenied || error instanceof Busy)) {
      return Deno.writeTextFileSync(target, text);
    }
    (error as Error).message = (error as Error).message.replaceAll(unfinished, path);
    throw error;
  }
}

/** Remedies for error messages of the system, of Deno and of `node:fs`. */
const REMEDIES: readonly (readonly [message: RegExp, remedy: string])[] = [
  [/symbolic links/i, "name the file or folder itself, as its links lead back to themselves"],
  [/name too long/i, "choose a shorter name"],
  [/open files/i, "close other programs, or raise the limit with ulimit -n"],
  [/space left|quota/i, "free space on its disk, or name another"],
  [/such file/i, "make its folder first, or name another"],
  [/not a directory/i, "name another, below folders alone"],
  [/a directory/i, "name a file"],
  [/permi|read-only/i, "name another, or change what this user may do with it"],
  [/./, "name another"],
];

/** Index of the first remedy that messages of other modules already imply. */
const IMPLIED = 4;

/** `Is a directory (os error 21): open 'x'`, or the same for a module or program. */
const SYSTEM_ERROR =
  /^(?:(?:Failed to \w+|Import) '([^']+)'(?: failed\.\s+0)?: )?([^'\n]+?) \(os error \d+\)(?:: \w+ '(.+)')?$/s;

/** `ELOOP: too many symbolic links encountered, open 'x'`, as in `node:fs`. */
const NODE_ERROR = /^E[A-Z]+: ([^'\n]+), (\w+)(?= '|$)/;

/** A system error at the end of a message. */
const AT_END = /received .*\(os error \d+\)[^;]*$/s;

/** V8's messages for a string or an array that is too large. */
const TOO_LARGE =
  /^(Invalid string length|Invalid (typed )?array length|Array buffer allocation f)/;

/**
 * Returns an error of the system or of memory with a remedy in its message; other errors unchanged.
 *
 * @param args arguments of the running command.
 */
export function explainSystemError(error: unknown, args: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const { message } = error, command = commandLine(...args);
  const [, subject, reason = "", named] =
    SYSTEM_ERROR.exec(message.replace(NODE_ERROR, "$1 (os error 0): $2")) ?? [];
  const path = named ?? subject ?? `the files of ${command}`;
  const remedyIn = (text: string) => REMEDIES.findIndex(([of]) => of.test(text));
  const remedy = REMEDIES[remedyIn(reason || message)]![1];
  if (TOO_LARGE.test(message)) {
    error.message =
      `Cannot run ${command}: each text and array that it makes must fit in memory, ` +
      "a text in 512 MiB, received a larger one; name a smaller file or size";
  } else if (reason !== "" && !message.includes("Cannot ")) {
    error.message =
      `Cannot use ${path}: it must be a path that this user can use, received ${reason}; ${remedy}`;
  } else if (AT_END.test(message) && remedyIn(message) < IMPLIED) {
    error.message = `${message}; ${remedy}`;
  }
  return error;
}

const LOOK_MS = 500;

/** Starts to show downloads, if a line of the terminal can be redrawn. */
export function showFetches(): void {
  watchFetches(hasChangingLines() ? show : undefined);
}

function show(fetching: Fetching): Disposable {
  const began = performance.now(), line = openStatusLine();
  const look = () => {
    const bytes = fetching.cachedBytes(), seconds = (performance.now() - began) / 1000;
    line.show((columns) => fetchLine(fetching, bytes, seconds, columns));
  };
  look();
  const timer = setInterval(look, LOOK_MS);
  Deno.unrefTimer(timer);
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
      line[Symbol.dispose]();
    },
  };
}

/**
 * Formats the line of a download, with the most important parts that fit.
 *
 * @param bytes bytes in the cache.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 *
 * const fetched = { name: "onnxruntime-node", megabytes: 290 };
 * assert.equal(fetchLine(fetched, 0, 7, 50), "onnxruntime-node: fetching 290 MB  7s");
 * assert.equal(fetchLine(fetched, 58e6, 75, 50), "onnxruntime-node: 58 of 290 MB unpacked  1m15s");
 * assert.equal(fetchLine(fetched, 58e6, 75, 21), "58 of 290 MB  1m15s");
 * ```
 */
export function fetchLine(
  { name, megabytes }: Pick<Fetching, "name" | "megabytes">,
  bytes: number,
  seconds: number,
  columns: number,
): string {
  const time = duration(seconds), done = Math.min(megabytes, Math.round(bytes / 1e6));
  const what = done === 0 ? `fetching ${megabytes} MB` : `${done} of ${megabytes} MB`;
  const whole = `${name}: ${what}${done === 0 ? "" : " unpacked"}  ${time}`;
  return [whole, `${what}  ${time}`, time].find(({ length }) => length <= columns) ?? "";
}
