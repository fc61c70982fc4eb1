/** A command that reacts to nothing: what it is started with says what Ctrl-C would have to wait for. */

import { print, runCommand } from "../../console/mod.ts";

await runCommand(async ({ begin }) => {
  if (Deno.args.length > 0) begin(Deno.args[0]);
  print("running");
  await new Promise((resolve) => setTimeout(resolve, 60_000));
  return 0;
});
