/** What ranks have done is replayed in one process. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { inFolder } from "../../../in_folder.ts";
import { doneOf, mpiTest, runCommand, runJob } from "./launchers.ts";
import { trainArgs } from "./train_runs.ts";

mpiTest(
  "the journal of a run on ranks replays without them, whole and for one worker",
  (launcher) =>
    inFolder(async (folder) => {
      const journal = join(folder, "journal.jsonl");
      const args = trainArgs({ schedule: "chimera", workers: 2, replicas: 1 });
      const more = ["--runtime", "mpi", "--out", join(folder, "out"), "--journal", journal];
      const ran = doneOf(await runJob(launcher, [2, ...args, ...more, "--journal-messages"]));

      const command = args.slice(0, args.indexOf("train")).concat("replay", journal);
      const whole = await runCommand([Deno.execPath(), ...command]);
      assert.equal(whole.code, 0, whole.stderr);
      assert.match(whole.stdout, /^\d{3} steps as recorded, hash [0-9a-f]{16}$/m);
      assert.ok(whole.stdout.includes(`"weightsHash":"${ran.weightsHash}"`), whole.stdout);
      const alone = await runCommand([Deno.execPath(), ...command, "--actor", "worker-1"]);
      assert.match(
        alone.stdout,
        /^worker-1: \d+ messages, \d+ doings and \d+ states as recorded$/m,
      );
    }),
  { once: true },
);
