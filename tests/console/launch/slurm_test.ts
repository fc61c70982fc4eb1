/** The script for sbatch, with a stand-in for srun that starts the ranks by MPICH's launcher. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { isThere, LAUNCHERS } from "../../actors/runtime/mpi/launchers.ts";
import { inFolder, jsonLines, runTroupe, trainJson } from "../command.ts";
import { SMALL_JOB } from "./launched.ts";

/** Kills rank 1 of the first try after three seconds, and counts tries. */
const SRUN = `
tasks=\${1#--ntasks=}; shift
[ "$1" = --mpi=pmi2 ] || exit 9
while [ "\${1#--}" != "$1" ]; do shift; done
echo try >> "$TRIES"
if [ $(wc -l < "$TRIES") = 1 ]; then
  mpirun.mpich -n "$tasks" sh -c '[ $PMI_RANK = 1 ] && sleep 3 && kill -9 $$; exec "$0" "$@"' "$@" > /dev/null
  echo "srun: error: node1: task 1: Exited with exit code 7" >&2
  exit 7
fi
exec mpirun.mpich -n "$tasks" "$@"
`;

Deno.test({
  name: "the script for sbatch starts its ranks by srun, and again when one dies",
  ignore: !isThere(LAUNCHERS[0]!),
  fn: () =>
    inFolder(async (folder) => {
      const script = join(folder, "job.sh"), srun = join(folder, "srun");
      const steps = ["--steps", "6"], out = join(folder, "out"), tries = join(folder, "tries");
      const flags = ["--mpi", "mpich", "--max-restarts", "2", "--slurm", script];
      const written = await runTroupe([
        "launch",
        ...flags,
        "--",
        ...SMALL_JOB,
        ...steps,
        "--out",
        out,
      ]);
      assert.equal(written.code, 0, written.stderr);
      const text = await Deno.readTextFile(script);
      assert.match(text, /^#!\/bin\/bash\n#SBATCH/);
      assert.match(text, /^#SBATCH --ntasks=2$/m);
      assert.match(text, /^# {3}srun --ntasks=2 --mpi=pmi2 /m);
      await Deno.writeTextFile(srun, `#!/bin/bash${SRUN}`, { mode: 0o755 });
      const bash = async (...args: string[]) => {
        const env = { PATH: `${folder}:${Deno.env.get("PATH")}`, TRIES: tries, NO_COLOR: "1" };
        const command = new Deno.Command("bash", { args, env, stdin: "null" });
        const { code, stdout, stderr } = await command.output();
        const [said, told] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
        return { code, stdout: said!, stderr: told! };
      };
      assert.deepEqual(await bash("-n", script), { code: 0, stdout: "", stderr: "" });
      const { code, stdout, stderr } = await bash(script);
      assert.equal(code, 0, stderr);
      assert.equal(await Deno.readTextFile(tries), "try\ntry\n");
      assert.match(
        stderr,
        /^Rank 1 on node1 ended before its time with exit code 7; going on from/m,
      );
      const { last } = await trainJson([...SMALL_JOB.slice(1), ...steps]);
      assert.equal(jsonLines(stdout).at(-1)!.weightsHash, last.weightsHash);
    }),
});
