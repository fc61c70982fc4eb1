/**
 * A command that waits. Its argument is the work that Ctrl-C has to wait for, or `computing` or
 * `blocking`, which leave no time for signals, the first with a result so far.
 */

import { print } from "../../console/terminal.ts";
import { runCommand } from "../../console/command.ts";

await runCommand(async ({ begin, soFar }) => {
  const [how] = Deno.args;
  if (how === "computing") await soFar!({ text: "a result\n", out: Deno.args[1] });
  else if (how !== undefined && how !== "blocking") begin(how);
  print("running");
  for (const end = performance.now() + 20_000; how?.endsWith("ing") && performance.now() < end;);
  await new Promise((resolve) => setTimeout(resolve, 60_000));
  return 0;
});
