/** The processes that this one has started, on Linux. */

/** Ids of the processes that `parent` has started and that are still there. */
export function childProcesses(parent = Deno.pid): number[] {
  const ids = [...Deno.readDirSync("/proc")].map(({ name }) => Number(name)).filter(
    Number.isInteger,
  );
  return ids.filter((id) => {
    try {
      const fields = Deno.readTextFileSync(`/proc/${id}/stat`).split(") ")[1]!.split(" ");
      return Number(fields[1]) === parent && fields[0] !== "Z";
    } catch {
      return false; // it has ended meanwhile
    }
  });
}
