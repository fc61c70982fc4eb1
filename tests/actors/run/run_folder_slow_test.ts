/** A script in a process: Ctrl-C saves its run, and the same script resumes it by name. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { readMetrics } from "../../../actors/run_folder/metrics_file.ts";
import { readRecord } from "../../../actors/run_folder/read.ts";
import { runScript } from "../../console/command.ts";
import { Running } from "../../console/running.ts";
import { HANG_LIMIT_MS } from "../../hang_limit.ts";
import { folderTest } from "../../in_folder.ts";

const SCRIPT = "tests/actors/run/script_entry.ts";

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  folderTest(`a script saves its run at ${signal}, and resumes it by name`, async (folder) => {
    const running = new Running(["run", "-A", SCRIPT, folder, "100000"]);
    await running.printed("stdout", /step 5\n/);
    running.interrupt("group", signal);
    const { code, stdout, stderr } = await running.end(HANG_LIMIT_MS);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /^There is no checkpoint in runs\/mine: starting at step 1\.$/m);
    assert.match(stderr, /Finishing the step under way; press Ctrl-C again to end immediately\./);
    const out = join(folder, "runs", "mine"), saved = readRecord(out)!.end!;
    assert.match(stdout, new RegExp(`^end true ${saved.weightsHash}$`, "m"));
    const steps = saved.step + 3;
    const resumed = await runScript(SCRIPT, [folder, `${steps}`]);
    const whole = await runScript(SCRIPT, [join(folder, "runs"), `${steps}`]);
    const last = /^end false \w+$/m;
    assert.equal(last.exec(resumed.stdout)![0], last.exec(whole.stdout)![0], resumed.stderr);
    const inOrder = Array.from(readMetrics(out), ({ metrics: { step } }) => step);
    assert.deepEqual(inOrder, Array.from({ length: steps }, (_, i) => i + 1));
    assert.match(readRecord(out)!.starts[1]!.script!, /script_entry\.ts$/);
  });
}
