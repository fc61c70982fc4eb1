/** A rank that joins its job for a while, or, where it is the one that is named, ends before. */

import { launchedRanks, openJob } from "../../../../actors/runtime/transports/mpi/job.ts";
import { print, printError } from "../../../../console/print.ts";

if (launchedRanks()!.rank === Number(Deno.args[0])) Deno.exit(3);
try {
  const job = await openJob({ joinMs: 2000 });
  print(`rank ${job.rank} has joined`);
} catch (error) {
  printError((error as Error).message);
  Deno.exit(1);
}
