/**
 * Kills or stops ranks, MPI's launcher or its proxies at random moments under `troupe launch`: the job
 * restarts and ends with the bits of an undisturbed job, and no process is left.
 *
 * @module
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { delay } from "@std/async/delay";
import { isThere, LAUNCHERS } from "../actors/runtime/mpi/launchers.ts";
import { print } from "../../console/terminal.ts";
import { inFolder, jsonLines, trainJson } from "../console/command.ts";
import { namesIn } from "../in_folder.ts";
import { type JobProcess, Launched, mpiFlag, SMALL_JOB } from "../console/launch/launched.ts";
import { type Case, casesOf, type Draw, runCampaign } from "./cases_helper.ts";
import { kill } from "./victim_helper.ts";

const STEPS = 30;

/** Stall timeout in seconds. */
const STALL = ["--stall-timeout", "5"];

/** Phases of a job, with their maximum lengths in milliseconds. */
const MOMENTS = { start: 1200, step: 300, checkpoint: 20, end: 250 } as const;

type Moment = keyof typeof MOMENTS;

const LAUNCHERS_HERE = LAUNCHERS.filter(isThere);

/** The hash of an undisturbed run, computed once. */
let unharmed: Promise<unknown> | undefined;

const hashInPeace = () =>
  unharmed ??= trainJson([...SMALL_JOB.slice(1), "--steps", `${STEPS}`])
    .then(({ last }) => last.weightsHash);

type IsVictim = (one: JobProcess) => boolean;

/** Waits for a moment of a job. */
async function come(job: Launched, moment: Moment, step: number, out: string, isVictim: IsVictim) {
  if (moment === "start") return void await job.process(isVictim);
  const last = moment === "end" ? STEPS : step;
  await job.running.printed("stdout", new RegExp(`"step":${last},`));
  // Until a checkpoint is being written, or none will be.
  const isWritten = (name: string) => name.startsWith(".step-") || name === `step-000000${STEPS}`;
  while (moment === "checkpoint" && !(await namesIn(out)).some(isWritten)) await delay(1);
}

function harmCase(draw: Draw, nth: number, signal: "SIGKILL" | "SIGSTOP"): Case {
  const launcher = LAUNCHERS_HERE[nth % LAUNCHERS_HERE.length]!;
  const victims = ["rank 0", "rank 0", "rank 1", "rank 1", "mpirun"];
  if (launcher.name === "MPICH") victims.push("proxy");
  const victim = signal === "SIGKILL" ? victims[draw(victims.length)]! : `rank ${draw(2)}`;
  const moment = (Object.keys(MOMENTS) as Moment[])[draw(4)]!;
  const step = 1 + draw(STEPS - 2), afterMs = draw.part() * MOMENTS[moment];
  const isVictim: IsVictim = ({ kind, rank }) => [kind, `rank ${rank}`].includes(victim);
  const name = JSON.stringify({ mpi: launcher.name, signal, victim, moment, step, afterMs });
  const run = () =>
    inFolder(async (folder) => {
      const out = join(folder, "out"), steps = ["--steps", `${STEPS}`];
      const train = [...SMALL_JOB, ...STALL, ...steps, "--out", out];
      const job = new Launched([mpiFlag(launcher), "--", ...train]);
      await come(job, moment, step, out, isVictim);
      await delay(afterMs);
      for (const { pid } of job.processes().filter(isVictim)) kill(pid, signal);
      const { code, stdout, stderr } = await job.end();
      assert.equal(code, 0, stderr);
      assert.equal(jsonLines(stdout).at(-1)!.weightsHash, await hashInPeace(), stderr);
    });
  return { name, run };
}

if (LAUNCHERS_HERE.length === 0) {
  print("launch needs MPI: Debian's mpich, openmpi-bin or both");
  Deno.exit(0);
}
await runCampaign("launch", 10, (count, seed) => [
  ...casesOf(count, seed, 80, "kill -9", (draw, nth) => harmCase(draw, nth, "SIGKILL")),
  ...casesOf(count, seed, 20, "stops", (draw, nth) => harmCase(draw, nth, "SIGSTOP")),
], navigator.hardwareConcurrency);
