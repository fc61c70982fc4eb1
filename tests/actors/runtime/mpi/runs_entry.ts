/** Trains some runs on the ranks of one job, and prints the bits of each: a script of ranks. */

import { follow, isFollower, lead } from "../../../../actors/run/mpi_run.ts";
import { print } from "../../../../console/print.ts";
import { outcome } from "../../runs.ts";
import { SIZES } from "./train_runs.ts";

if (isFollower()) await follow({});
else {
  await using _job = await lead({});
  for (const options of JSON.parse(Deno.args[0]!)) {
    print(JSON.stringify((await outcome(SIZES, { ...options, runtime: "mpi" })).bits));
  }
}
Deno.exit(0);
