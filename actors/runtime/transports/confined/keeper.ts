/**
 * What ends a confined process when the program dies, however it does, and whatever that process is
 * doing then. It cannot end itself: an endless loop sees nothing, and without permissions nobody may
 * kill. So a shell waits for the end of its input, which only the program holds, and kills then.
 *
 * @module
 */

/** Keeps a process. */
export interface Keeper extends AsyncDisposable {}

/**
 * Starts the keeper of a process. To be disposed of when that has ended, before its number can be
 * another's.
 *
 * @param folder that of the program, which is removed when the program dies.
 */
export function keep(pid: number, folder: string): Keeper {
  if (Deno.build.os === "windows") return { [Symbol.asyncDispose]: () => Promise.resolve() };
  const shell = new Deno.Command("sh", {
    // Ctrl-C and the end of a terminal are no end of the program.
    args: ["-c", 'trap "" INT HUP TERM; read -r end; kill -9 "$0"; rm -rf "$1"', `${pid}`, folder],
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  return {
    async [Symbol.asyncDispose]() {
      try {
        shell.kill("SIGKILL");
      } catch {
        // Somebody has killed it.
      }
      await shell.status;
      await shell.stdin.close().catch(() => {});
    },
  };
}
