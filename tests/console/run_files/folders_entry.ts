/** Creates folders of runs in a worker, and sends their names. */

/// <reference lib="deno.worker" />

import { makeRunFolder } from "../../../console/run_files/run_folder.ts";

self.onmessage = ({ data: { parent, count } }) => {
  const made = Array.from({ length: count }, () => makeRunFolder("gpt", parent).path);
  self.postMessage(made);
};
