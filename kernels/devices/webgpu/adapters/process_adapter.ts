/**
 * The one adapter of a process.
 *
 * @module
 */

import type { Adapter } from "./adapter.ts";

/** An environment variable is the same in all isolates of a process; children inherit it. */
const VARIABLE = "TROUPE_WEBGPU_ADAPTER";

const claimOf = ({ environment }: Adapter) => `${Deno.pid} ${JSON.stringify(environment)}`;

/**
 * Makes sure that this process has used no other adapter.
 *
 * The provider loads the drivers once in the life of a process, so what the first call chose stays.
 *
 * @throws {Error} when it has.
 */
export function assertOnlyAdapter(adapter: Adapter): void {
  const claim = Deno.env.get(VARIABLE);
  // One that a parent process set is not of this process.
  if (claim === claimOf(adapter) || !claim?.startsWith(`${Deno.pid} `)) return;
  throw new Error(
    `Cannot open the webgpu device: a process can use one adapter, received adapter ${adapter.index} (${adapter.name}) after another; use a process for each, as train() with isolation process does`,
  );
}

/**
 * Opens the GPU while the process's environment shows an adapter first; afterwards the environment is
 * as it was, for the children of this program.
 */
export function seeingAdapter<T>(adapter: Adapter, open: () => T): T {
  const restore = setVariables(adapter.environment);
  try {
    const opened = open();
    Deno.env.set(VARIABLE, claimOf(adapter));
    return opened;
  } finally {
    restore();
  }
}

function setVariables(environment: Readonly<Record<string, string>>): () => void {
  const before = Object.keys(environment).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(environment)) Deno.env.set(name, value);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
    }
  };
}
