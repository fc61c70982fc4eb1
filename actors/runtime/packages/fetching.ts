/**
 * Deno run to look at modules of somebody else: what a graph names may have no end, as `/dev/zero`
 * has none, so that time and memory are limited.
 *
 * @module
 */

import { memoryOf } from "../transports/confined/memory.ts";

/** How long fetching may take, in milliseconds. */
const TIME_LIMIT_MS = 300_000;

/** Memory that it may take, in MiB. */
const MEMORY_LIMIT_MB = 1024;

/** How often its memory is looked at, in milliseconds. */
const LOOK_MS = 50;

/** Configurations of the place where it runs mean nothing to a package; see also `--no-config`. */
export const NO_CONFIG_ENV = {
  DENO_NO_PACKAGE_JSON: "1",
  DENO_NO_UPDATE_CHECK: "1",
  NO_COLOR: "1",
};

/** What Deno said. */
export interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs Deno with these arguments to its end, or to a limit; `stderr` says which. */
export async function runDeno(args: readonly string[]): Promise<Said> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args],
    env: NO_CONFIG_ENV,
    ...{ stdin: "null", stdout: "piped", stderr: "piped" },
  }).spawn();
  let why: string | undefined, passedMs = 0;
  const watch = setInterval(async () => {
    passedMs += LOOK_MS;
    if (passedMs > TIME_LIMIT_MS) why ??= `more than ${TIME_LIMIT_MS} ms`;
    if (await memoryOf(child.pid) > MEMORY_LIMIT_MB) why ??= `more than ${MEMORY_LIMIT_MB} MiB`;
    if (why === undefined) return;
    clearInterval(watch);
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended meanwhile.
    }
  }, LOOK_MS);
  try {
    const { code, stdout, stderr } = await child.output(), decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: why ?? decoder.decode(stderr).trim() };
  } finally {
    clearInterval(watch);
  }
}
