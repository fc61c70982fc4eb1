/**
 * Runs the tests of `deno task test`, or of `deno task test:deep` where `TROUPE_TEST` is `deep`.
 *
 * The files of `_alone_test.ts` run one after another in their own process, beside the others.
 * Formatting, lint and types, which need one core, are checked beside them. The exit code is 1 if a
 * check or a test fails.
 *
 * @module
 */

import { IS_DEEP } from "../depth.ts";

/** Tests also wait, for processes and timers: one file more than there are cores keeps all busy. */
const JOBS = navigator.hardwareConcurrency + 1;

const LATER = IS_DEEP ? [] : ["**/*_deep_test.ts"];

async function isPassed(args: readonly string[], jobs = 1): Promise<boolean> {
  const env = { DENO_JOBS: `${jobs}` };
  return (await new Deno.Command(Deno.execPath(), { args: [...args], env }).spawn().status).success;
}

const test = (...args: readonly string[]) => ["test", "-A", "--no-check", "--parallel", ...args];

const passed = await Promise.all([
  isPassed(["task", "check"]),
  isPassed(test(`--ignore=${["**/*_alone_test.ts", ...LATER].join(",")}`), JOBS),
  isPassed(test("**/*_alone_test.ts")),
]);
if (passed.includes(false)) Deno.exit(1);
