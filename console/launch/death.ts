/**
 * Finds the death of a rank in the output of an MPI launcher. Reports of several lines are removed
 * from the output.
 *
 * @module
 */

/** The death of a rank, as far as the launcher reports it. */
export interface Death {
  readonly rank?: number;
  readonly pid?: number;
  readonly host?: string;
  /** The signal that killed it, such as `Killed (signal 9)`. */
  readonly signal?: string;
  readonly code?: number;
}

/** Filters the lines of a stream and finds the first death in them. */
export interface LineFilter {
  /** Takes a line and returns the lines to print now. */
  take(line: string): readonly string[];
  /** Returns the lines still held back when the stream ends. */
  rest(): readonly string[];
  /** The first death found. */
  readonly death: Death | undefined;
}

/** The start of hydra's final report on standard output: a ruler and a title. */
const HYDRA_RULER = /^={60,}$/, HYDRA_TITLE = /^= +BAD TERMINATION/;

/** Filters standard output of MPICH's hydra. Ranks print nothing after its final report. */
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

/** Filters standard error of Open MPI, which reports deaths and the abort between rulers. */
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

/** Filters standard error of Slurm's srun, which reports each failed task in one line. */
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

/** Passes every line and finds no death. */
export const allLines = (): LineFilter => ({
  take: (line) => [line],
  rest: () => [],
  death: undefined,
});
