/** Creates folders of runs in a worker, and sends their names. */

/// <reference lib="deno.worker" />

import { makeRunFolder } from "../../../actors/run_folder/read.ts";

self.onmessage = ({ data: { parent, count } }) => {
  const made = Array.from({ length: count }, () => makeRunFolder("gpt", parent).path);
  self.postMessage(made);
};
