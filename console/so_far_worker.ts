/**
 * The worker of {@linkcode openSoFar}.
 *
 * @module
 */

import type { ResultSoFar } from "./so_far.ts";
import { printError, writeAll, writeOutput } from "./terminal.ts";

let last: ResultSoFar | undefined;
const scope = globalThis as unknown as Pick<Worker, "onmessage" | "postMessage">;
scope.onmessage = ({ data }) => last = data;

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  const end = () => {
    try {
      printError(`Ended by ${signal}: this is the best result so far.`);
      if (last?.out !== undefined) writeOutput(last.out, last.text);
      else if (last) writeAll(Deno.stdout, last.text);
    } finally {
      Deno.removeSignalListener(signal, end);
      Deno.kill(Deno.pid, signal);
    }
  };
  if (signal === "SIGINT" || Deno.build.os !== "windows") Deno.addSignalListener(signal, end);
}
scope.postMessage("listening");
