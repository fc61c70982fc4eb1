/** Runs test files in a process group, so that a file that hangs leaves nothing behind. */

/** The result of one `deno test`. */
export interface TestRun {
  readonly isPassed: boolean;
  /** Title of the first test that failed, or the reason why no test ran to its end. */
  readonly failure: string;
  readonly output: string;
  readonly seconds: number;
  /** User and system time of the process and its children. */
  readonly cpuSeconds: number;
}

/** Process groups that run now; {@link killAll} ends them. */
const groups = new Set<number>();

/** Runs `deno test` with these arguments in a checkout; a run over the limit counts as failed. */
export async function runTests(
  root: string,
  args: readonly string[],
  limitSeconds = 600,
): Promise<TestRun> {
  const started = performance.now();
  const child = new Deno.Command("bash", {
    args: [
      ...["-c", `TIMEFORMAT="cpu %U %S"; time "$0" "$@" 2>&1`, Deno.execPath()],
      ...["test", "-A", "--no-check", ...args],
    ],
    cwd: root,
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    detached: true,
  }).spawn();
  groups.add(child.pid);
  let isOverLimit = false;
  const timer = setTimeout(() => {
    isOverLimit = true;
    killGroup(child.pid);
  }, limitSeconds * 1000);
  const { success, stdout, stderr } = await child.output();
  clearTimeout(timer);
  killGroup(child.pid);
  groups.delete(child.pid);
  const output = new TextDecoder().decode(stdout);
  const [, user, system] = /cpu ([\d.]+) ([\d.]+)\s*$/.exec(new TextDecoder().decode(stderr)) ?? [];
  return {
    isPassed: success && !isOverLimit,
    failure: isOverLimit ? `no end within ${limitSeconds} s` : firstFailure(output),
    output,
    seconds: (performance.now() - started) / 1000,
    cpuSeconds: Number(user ?? 0) + Number(system ?? 0),
  };
}

/** Ends all test processes that run now. */
export function killAll(): void {
  for (const group of groups) killGroup(group);
}

function killGroup(group: number): void {
  try {
    Deno.kill(-group, "SIGKILL");
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function firstFailure(output: string): string {
  const failed = /^\s*(.+?) \.\.\. (?:.*\n)*?.*?FAILED/m;
  const summary = /^ FAILURES\s*\n+([^\n]+?) => /m.exec(output);
  const error = /^(?:error|\(in promise\)|.*uncaught error.*): ?(.*)$/im.exec(output);
  return (summary?.[1] ?? failed.exec(output)?.[1] ?? error?.[0] ?? "").trim();
}
