/**
 * How a rank has died, as launchers of MPI tell it among what ranks say. Where they tell it in many
 * lines, these are taken out.
 *
 * @module
 */

/** What is known of a rank that has died. */
export interface Death {
  readonly rank?: number;
  readonly pid?: number;
  readonly host?: string;
  /** By what: `Killed (signal 9)`. */
  readonly signal?: string;
  readonly code?: number;
}

/** Lines that are passed on, and what else they tell. */
export interface LineFilter {
  /** The lines that are passed on now that this one has come. */
  take(line: string): readonly string[];
  /** What was held back in vain. */
  rest(): readonly string[];
  /** The first death that was told. */
  readonly death: Death | undefined;
}

/** What hydra writes to standard output at the end: a ruler, and what has ended how. */
const HYDRA_RULER = /^={60,}$/, HYDRA_TITLE = /^= +BAD TERMINATION/;

/** Standard output of MPICH's hydra: behind its ruler nothing more comes from ranks. */
export function hydraOutput(): LineFilter {
  let held: string[] = [], told: string | undefined;
  return {
    take(line) {
      if (told !== undefined) told += `${line}\n`;
      else if (line === "" || (HYDRA_RULER.test(line) && !held.some((one) => one !== ""))) {
        held.push(line);
      } else if (HYDRA_TITLE.test(line) && HYDRA_RULER.test(held.at(-1) ?? "")) {
        told = "";
        held = [];
      } else return [...held.splice(0), line];
      return [];
    },
    rest: () => held.splice(0),
    get death() {
      return told === undefined ? undefined : hydraDeath(told);
    },
  };
}

function hydraDeath(text: string): Death {
  const [, pid, host] = /^= +PID (\d+) RUNNING AT (\S+)/m.exec(text) ?? [];
  const [, signal] = /EXIT STRING: (.+\(signal \d+\))/.exec(text) ?? [];
  const [, code] = /EXIT CODE: (\d+)/.exec(text) ?? [];
  return {
    ...pid !== undefined && { pid: Number(pid), host: host! },
    ...signal !== undefined ? { signal } : code !== undefined && { code: Number(code) },
  };
}

const OPEN_MPI_RULER = /^-{60,}$/;

/** Open MPI tells on standard error, between rulers, what has ended how, and that it ends the rest. */
export function openMpiErrors(): LineFilter {
  let block: string[] | undefined, death: Death | undefined;
  const end = (lines: readonly string[]): readonly string[] => {
    const text = lines.join("\n"), found = openMpiDeath(text);
    death ??= found;
    return found || /job has been aborted/.test(text) ? [] : lines;
  };
  return {
    take(line) {
      if (OPEN_MPI_RULER.test(line)) {
        if (!block) block = [line];
        else {
          const whole = [...block, line];
          block = undefined;
          return end(whole);
        }
      } else if (block) block.push(line);
      else return [line];
      return [];
    },
    rest() {
      const lines = block ?? [];
      block = undefined;
      return lines;
    },
    get death() {
      return death;
    },
  };
}

function openMpiDeath(text: string): Death | undefined {
  const [, rank, host, number, name] =
    /process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+) \((.+?)\)/.exec(text) ??
      [];
  if (rank !== undefined) {
    return { rank: Number(rank), host: host!, signal: `${name} (signal ${number})` };
  }
  const [, other, code] = /Process name: \[\[\d+,\d+\],(\d+)\]\s+Exit code:\s+(\d+)/.exec(text) ??
    [];
  return other === undefined ? undefined : { rank: Number(other), code: Number(code) };
}

/** Slurm's srun tells each task in a line on standard error. */
export function srunErrors(): LineFilter {
  let death: Death | undefined;
  return {
    take(line) {
      const [, host, task, how] = /^srun: error: (\S+): tasks? (\d+)[\d,-]*: (.+)$/.exec(line) ??
        [];
      if (task !== undefined) {
        const [, code] = /^Exited with exit code (\d+)/.exec(how!) ?? [];
        const way = code === undefined ? { signal: how! } : { code: Number(code) };
        death ??= { rank: Number(task), host: host!, ...way };
      }
      return [line];
    },
    rest: () => [],
    get death() {
      return death;
    },
  };
}

/** Lets everything pass. */
export const allLines = (): LineFilter => ({
  take: (line) => [line],
  rest: () => [],
  death: undefined,
});
