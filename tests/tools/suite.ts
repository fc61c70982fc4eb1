/**
 * Runs the tests of `deno task test`, or of `deno task test:deep` where `TROUPE_TEST` is `deep`.
 *
 * The files of `_alone_test.ts` run one after another in their own process, beside the others. The
 * exit code is 1 if a test fails.
 *
 * @module
 */

import { IS_DEEP } from "../depth.ts";

/** Tests also wait, for processes and timers: one file more than there are cores keeps all busy. */
const JOBS = navigator.hardwareConcurrency + 1;

const LATER = IS_DEEP ? [] : ["**/*_deep_test.ts"];

async function isPassed(jobs: number, ...args: readonly string[]): Promise<boolean> {
  const { success } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--no-check", "--parallel", ...args],
    env: { DENO_JOBS: `${jobs}` },
  }).spawn().status;
  return success;
}

const passed = await Promise.all([
  isPassed(JOBS, `--ignore=${["**/*_alone_test.ts", ...LATER].join(",")}`),
  isPassed(1, "**/*_alone_test.ts"),
]);
if (passed.includes(false)) Deno.exit(1);
