/**
 * Stops workers at random moments, for a while or for ever: the run goes on or recovers, and ends
 * with the weights of a run left in peace. And lets healthy runs be as slow as they like: none may
 * be taken for one that has stalled.
 *
 * @module
 */

import { scheduleNames } from "../../schedules/mod.ts";
import { childProcesses } from "../actors/child_processes.ts";
import {
  type Case,
  casesOf,
  type Draw,
  drawHarm,
  type Harm,
  kill,
  peace,
  runCampaign,
  suffer,
  type VictimOptions,
} from "./victim_helper.ts";

/** A worker does not move for so long before it is ended. */
const STALL_MS = 2000;

/** What a run must not say: that it waited for an answer in vain. */
const TIMED_OUT = /AskTimeoutError|did not answer .* within|hung/;
const STALLED = /stalled for/;

const unharmed = peace();

/** Runs a victim that is stopped; without `forMs` nobody lets it go on. */
async function stopped(
  options: VictimOptions,
  { moment, afterMs, which }: Harm,
  forMs: number | undefined,
): Promise<string | undefined> {
  const fate = await suffer(options, (now, pid) => {
    if (now !== moment) return;
    setTimeout(() => {
      const children = childProcesses(pid);
      const one = children[Math.floor(which * children.length)];
      if (one === undefined || !kill(one, "SIGSTOP") || forMs === undefined) return;
      setTimeout(() => kill(one, "SIGCONT"), forMs);
    }, afterMs);
  });
  const expected = await unharmed(options);
  const isWell = fate.hash !== undefined && fate.hash === expected && !TIMED_OUT.test(fate.output);
  if (isWell) return undefined;
  return `received ${fate.hash} for ${expected} after ${fate.seconds.toFixed(0)} s: ${fate.output}`;
}

function workerCase(draw: Draw, nth: number, isForEver: boolean): Case {
  const names = scheduleNames(), schedule = names[nth % names.length]!;
  const options = {
    ...{ schedule, workers: 2, device: "native", isolation: "process" } as const,
    ...{ retries: 10, stallMs: STALL_MS },
  };
  const harm = drawHarm(draw, false), forMs = isForEver ? undefined : draw(2 * STALL_MS);
  return {
    name: `SIGSTOP of a process, ${JSON.stringify({ ...options, ...harm, forMs })}`,
    run: () => stopped(options, harm, forMs),
  };
}

/** A healthy run, which nothing may be said of. */
async function healthy(
  options: VictimOptions,
  hurt?: (moment: string, pid: number) => void,
): Promise<string | undefined> {
  const fate = await suffer({ ...options, retries: 0 }, hurt), expected = await unharmed(options);
  const isWell = fate.hash !== undefined && fate.hash === expected;
  if (isWell && !STALLED.test(fate.output)) return undefined;
  return `received ${fate.hash} for ${expected} after ${fate.seconds.toFixed(0)} s: ${fate.output}`;
}

/** The whole program is stopped for longer than a stall, as a laptop is suspended. */
function programCase(draw: Draw, nth: number): Case {
  const isolation = nth % 2 === 0 ? "process" : "worker";
  const options = { schedule: "1f1b", workers: 2, isolation, stallMs: STALL_MS } as const;
  const { moment, afterMs } = drawHarm(draw, false), forMs = STALL_MS + draw(2 * STALL_MS);
  return {
    name: `SIGSTOP of a program, ${JSON.stringify({ ...options, moment, afterMs, forMs })}`,
    run: () =>
      healthy({ ...options, device: "native" }, (now, pid) => {
        if (now !== moment) return;
        setTimeout(() => {
          if (!kill(-pid, "SIGSTOP")) return;
          setTimeout(() => kill(-pid, "SIGCONT"), forMs);
        }, afterMs);
      }),
  };
}

/** Long kernels, or six workers on a slow link, which a stall would be long over in. */
function slowCase(draw: Draw, nth: number): Case {
  const isolation = nth % 2 === 0 ? "process" : "worker", isFast = draw(2) === 0;
  const sizes = { layers: 4, hidden: 64, seq: 64, microBatches: 2, steps: 2 };
  const kernels: VictimOptions = { sizes, device: "reference", workers: 2, stallMs: 300 };
  const link = { latencyUs: 300_000, gigabytesPerSecond: isFast ? 1 : 1e-5 };
  const links: VictimOptions = {
    ...{ sizes: { microBatches: 6, steps: 2 }, device: "native", workers: 6, stallMs: 250, link },
    schedule: ["1f1b", "gpipe", "pipedream", "pipedream-2bw"][draw(4)]!,
  };
  const options = { ...draw(2) === 0 ? kernels : links, isolation } as const;
  return { name: `a slow run, ${JSON.stringify(options)}`, run: () => healthy(options) };
}

await runCampaign("stops", 100, (count, seed) => [
  ...casesOf(count, seed, 35, "for a while", (draw, nth) => workerCase(draw, nth, false)),
  ...casesOf(count, seed, 35, "for ever", (draw, nth) => workerCase(draw, nth, true)),
  ...casesOf(count, seed, 15, "programs", programCase),
  ...casesOf(count, seed, 15, "slow", slowCase),
]);
