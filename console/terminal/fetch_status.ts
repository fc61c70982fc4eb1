/**
 * Shows how far a download has come.
 *
 * @module
 */

import { type Fetching, watchFetches } from "../../kernels/mod.ts";
import { openStatusLine } from "./status_line.ts";
import { duration, hasChangingLines } from "./terminal.ts";

const LOOK_MS = 500;

/** Shows downloads from now on, where there is a terminal on which a line can change. */
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
 * The line of a download: all that there is room for, from what matters most.
 *
 * @param bytes in the cache.
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
  const lines = done === 0
    ? [`${name}: fetching ${megabytes} MB  ${time}`, `fetching ${megabytes} MB  ${time}`]
    : [
      `${name}: ${done} of ${megabytes} MB unpacked  ${time}`,
      `${done} of ${megabytes} MB  ${time}`,
    ];
  return [...lines, time].find(({ length }) => length <= columns) ?? "";
}
