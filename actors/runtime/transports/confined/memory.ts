/**
 * How much memory another process holds.
 *
 * @module
 */

const KB_OF_MB = 2 ** 10;

/** Milliseconds after which `ps` is asked again: it is a process of its own. */
const PS_MS = 200;

/** The memory that a process has resident, in MiB; 0 when it is gone. */
export async function memoryOf(pid: number): Promise<number> {
  // Deno lets only those read this that may do everything.
  if (Deno.build.os === "linux") {
    try {
      const [, kb = 0] = /^VmRSS:\s*(\d+)/m.exec(Deno.readTextFileSync(`/proc/${pid}/status`)) ??
        [];
      return Number(kb) / KB_OF_MB;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotCapable)) return 0;
    }
  }
  await new Promise((resolve) => setTimeout(resolve, PS_MS));
  const { stdout } = await new Deno.Command("ps", { args: ["-o", "rss=", "-p", `${pid}`] })
    .output();
  return Number(new TextDecoder().decode(stdout)) / KB_OF_MB;
}
