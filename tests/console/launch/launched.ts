/** A running `troupe launch` and the processes that it started, on Linux. */

import assert from "node:assert/strict";
import { basename } from "node:path";
import { delay } from "@std/async/delay";
import { LAUNCH_VARIABLE } from "../../../actors/transports/mpi/launch_watch.ts";
import { childProcesses } from "../../actors/child_processes.ts";
import { ENVIRONMENT as OF_LAUNCHER, type Launcher } from "../../actors/runtime/mpi/launchers.ts";
import { Running } from "../running.ts";
import { type Environment, type Outcome, words } from "../command.ts";

/** A process of a job. */
export interface JobProcess {
  readonly pid: number;
  /** `mpirun` is the process of the launch, `proxy` the process of mpirun on a host. */
  readonly kind: "mpirun" | "proxy" | "rank";
  readonly rank: number | undefined;
}

/** Name of the MPI for `--mpi`. */
export const mpiFlag = ({ name }: Launcher) => `--mpi=${name === "MPICH" ? "mpich" : "openmpi"}`;

/** The smallest job of two ranks, with a checkpoint every second step. */
export const SMALL_JOB = words`train --layers 2 --hidden 16 --heads 2 --seq 8
  --micro-batch-size 2 --micro-batches 2 --device reference --json
  --workers 2 --checkpoint-every 2 --keep 2 --eval-every 1000`;

/** Time within which processes of a job notice that others have ended. */
const GRACE_MS = 30_000;

/** A launch of a job. */
export class Launched {
  readonly running: Running;
  #launch: string | undefined;

  /** @param args of `troupe launch`. */
  constructor(args: readonly string[], env: Environment = {}) {
    const command = ["run", "-A", "--no-check", "cli.ts", "launch", ...args];
    this.running = new Running(command, false, { ...OF_LAUNCHER, ...env });
  }

  /** The processes of the job. */
  processes(): JobProcess[] {
    this.#launch ??= childProcesses(this.running.pid)
      .map((pid) => environment(pid)[LAUNCH_VARIABLE]).find((name) => name !== undefined);
    if (this.#launch === undefined) return [];
    const numbers = Array.from(Deno.readDirSync("/proc"), ({ name }) => Number(name));
    const ids = numbers.filter(Number.isInteger);
    return ids.flatMap((pid): JobProcess[] => {
      const env = environment(pid), rank = env.OMPI_COMM_WORLD_RANK ?? env.PMI_RANK;
      if (env[LAUNCH_VARIABLE] !== this.#launch) return [];
      if (rank !== undefined) return [{ pid, kind: "rank", rank: Number(rank) }];
      const isProxy = commandOf(pid).includes("proxy");
      return [{ pid, kind: isProxy ? "proxy" : "mpirun", rank: undefined }];
    });
  }

  /** Waits for a process of the job. */
  async process(wanted: (one: JobProcess) => boolean): Promise<number> {
    for (;;) {
      const found = this.processes().find(wanted);
      if (found) return found.pid;
      await delay(20);
    }
  }

  /** Waits for the end, and checks that no process is left. */
  async end(): Promise<Outcome> {
    const outcome = await this.running.end();
    await this.nobodyIsLeft();
    return outcome;
  }

  /** Waits until no process is left, and fails after a time. */
  async nobodyIsLeft(): Promise<void> {
    const began = performance.now();
    for (let left = this.processes(); left.length > 0; left = this.processes()) {
      const isOver = performance.now() - began > GRACE_MS;
      assert.ok(!isOver, `no process may be left, received ${JSON.stringify(left)}`);
      await delay(50);
    }
  }
}

/** Returns the initial environment of a process; empty if it has ended. */
function environment(pid: number): Record<string, string> {
  try {
    const text = Deno.readTextFileSync(`/proc/${pid}/environ`);
    return Object.fromEntries(text.split("\0").map((one) => one.split("=", 2)));
  } catch {
    return {};
  }
}

function commandOf(pid: number): string {
  try {
    return basename(Deno.readTextFileSync(`/proc/${pid}/cmdline`).split("\0")[0]!);
  } catch {
    return "";
  }
}
