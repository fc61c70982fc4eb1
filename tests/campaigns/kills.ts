/**
 * Kills and stops workers, the search for the native library and whole programs at random moments:
 * the run, or the resumed run, ends with the weights of an undisturbed run. Healthy runs that are slow
 * or suspended are never reported as stalled.
 *
 * @module
 */

import { join } from "node:path";
import { readCheckpoint } from "../../actors/checkpoints/read.ts";
import { print } from "../../console/terminal.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { childProcesses } from "../actors/child_processes.ts";
import { inFolder, TINY_MODEL, trainJson } from "../console/command.ts";
import { Running, TRAIN } from "../console/running.ts";
import { hasSwiftShader } from "../gpu.ts";
import { type Case, casesOf, type Draw, runCampaign } from "./cases_helper.ts";
import { drawHarm, type Harm, kill, survive, type VictimOptions } from "./victim_helper.ts";

/** Number of kills of a whole program in a case, each followed by a resume. */
const KILLS_A_PROGRAM = 5;

/** Stall timeout of a worker. */
const STALL_MS = 2000;

/** Output that a run must not print: an ask without an answer. */
const TIMED_OUT = /AskTimeoutError|did not answer .* within|hung/;

function drawOptions(draw: Draw, nth: number): VictimOptions {
  const names = scheduleNames(), schedule = names[nth % names.length]!;
  // Enough layers and micro-batches for the stages and waves of each schedule on four workers.
  const sizes = { layers: 6, microBatches: 8 };
  return { schedule, sizes, workers: draw(4) === 0 ? 4 : 2, device: "native", retries: 10 };
}

/** Sends a signal to a process of the victim; a stopped process continues after a time, if given. */
const harmOne =
  ({ moment, afterMs, which }: Harm, signal: Deno.Signal = "SIGKILL", forMs?: number) =>
  (now: string, pid: number) => {
    if (now !== moment) return;
    setTimeout(() => {
      const children = childProcesses(pid), one = children[Math.floor(which * children.length)];
      if (one === undefined || !kill(one, signal) || forMs === undefined) return;
      setTimeout(() => kill(one, "SIGCONT"), forMs);
    }, afterMs);
  };

type Hurt = (moment: string, pid: number) => void;

/** A case of a victim that must survive. */
const victim = (what: string, options: VictimOptions, hurt?: Hurt, never?: RegExp): Case => ({
  name: `${what}, ${JSON.stringify(options)}`,
  run: () => survive(options, hurt, never),
});

const processCase = (draw: Draw, nth: number): Case => {
  const options: VictimOptions = { ...drawOptions(draw, nth), isolation: "process" };
  return victim("kill -9 of a process", options, harmOne(drawHarm(draw)));
};

const threadCase = (draw: Draw, nth: number): Case =>
  victim("end of a thread", { ...drawOptions(draw, nth), thread: drawHarm(draw, true) });

/** Any child process: the search for the library, or a starting worker. */
function earlyCase(draw: Draw): Case {
  const options = { isolation: "process", workers: 2, schedule: "1f1b", retries: 10 } as const;
  let afterMs = 0;
  const kills = [200, 400, 1000].map((lastingMs): Harm => ({
    moment: "begin",
    afterMs: afterMs += draw.part() * lastingMs,
    which: draw.part(),
  }));
  return victim(
    "early kill -9",
    options,
    (now, pid) => kills.forEach((one) => harmOne(one)(now, pid)),
  );
}

/** A program that is killed and resumed repeatedly, and finally undisturbed. */
function programCase(draw: Draw): Case {
  const isolation = draw(4) === 0 ? "process" : "worker";
  const schedule = ["1f1b", "message-driven", "pipedream", "pipedream-2bw"][draw(4)]!;
  const moments = Array.from({ length: KILLS_A_PROGRAM }, () => ({
    isStarting: draw(3) === 0,
    afterMs: draw.part() * 500,
  }));
  const name = `kill -9 of a program, ${JSON.stringify({ isolation, schedule, moments })}`;
  const run = () =>
    inFolder(async (folder) => {
      const text = join(folder, "text.txt"), out = join(folder, "out");
      await Deno.mkdir(out);
      await Deno.writeTextFile(text, "In the beginning was the word. ".repeat(20));
      const train = [
        ...[...TINY_MODEL, "--micro-batches", "2", "--workers", "2", "--schedule", schedule],
        ...["--isolation", isolation, "--text", text, "--checkpoint-every", "1", "--keep", "2"],
      ];
      const resumed = [...train, "--resume", out];
      for (const { isStarting, afterMs } of moments) {
        const running = new Running([...TRAIN, ...resumed, "--steps", "100000", "--json"]);
        if (!isStarting) await running.printed("stdout", /"step":\d+,.*\n/);
        await new Promise((resolve) => setTimeout(resolve, afterMs));
        running.kill();
        await running.end(10_000);
      }
      const steps = ["--steps", `${((await readCheckpoint(out))?.step ?? 0) + 3}`];
      const { last } = await trainJson([...resumed, ...steps]);
      const whole = await trainJson([...train, "--out", join(folder, "whole"), ...steps]);
      return last.weightsHash === whole.last.weightsHash
        ? undefined
        : `received ${last.weightsHash} for ${whole.last.weightsHash} after ${steps[1]} steps`;
    });
  return { name, run };
}

/** A worker that is stopped, for a time or permanently. */
function stopCase(draw: Draw, nth: number): Case {
  const options: VictimOptions = {
    ...{ ...drawOptions(draw, nth), workers: 2, isolation: "process", stallMs: STALL_MS },
  };
  const harm = drawHarm(draw), forMs = nth % 2 === 0 ? undefined : draw(2 * STALL_MS);
  return victim("SIGSTOP of a process", options, harmOne(harm, "SIGSTOP", forMs), TIMED_OUT);
}

/** The whole program is stopped for longer than the stall timeout, like on a suspended laptop. */
function suspendedCase(draw: Draw, nth: number): Case {
  const options: VictimOptions = {
    ...{ schedule: "1f1b", workers: 2, device: "native", stallMs: STALL_MS, retries: 0 },
    isolation: nth % 2 === 0 ? "process" : "worker",
  };
  const { moment, afterMs } = drawHarm(draw), forMs = STALL_MS + draw(2 * STALL_MS);
  const suspend = (now: string, pid: number) => {
    if (now !== moment) return;
    setTimeout(() => {
      if (kill(-pid, "SIGSTOP")) setTimeout(() => kill(-pid, "SIGCONT"), forMs);
    }, afterMs);
  };
  return victim("SIGSTOP of a program", options, suspend, /stalled for/);
}

/** Long kernels, or six workers on a slow link: slower than the stall timeout. */
function slowCase(draw: Draw, nth: number): Case {
  const sizes = { layers: 4, hidden: 64, seq: 64, microBatches: 2, steps: 2 };
  const link = { latencyUs: 300_000, gigabytesPerSecond: draw(2) === 0 ? 1 : 1e-5 };
  const links: VictimOptions = {
    ...{ sizes: { microBatches: 6, steps: 2 }, device: "native", workers: 6, stallMs: 250, link },
    schedule: ["1f1b", "gpipe", "pipedream", "pipedream-2bw"][draw(4)]!,
  };
  const options: VictimOptions = {
    ...draw(2) === 0 ? { sizes, device: "reference", workers: 2, stallMs: 300 } : links,
    ...{ isolation: nth % 2 === 0 ? "process" : "worker", retries: 0 },
  };
  return victim("a slow run", options, undefined, /stalled for/);
}

/** A worker on the GPU, which compiles shaders at its start, is killed or stopped permanently. */
function gpuCase(draw: Draw, nth: number): Case {
  const options: VictimOptions = {
    ...{ schedule: "1f1b", workers: 2, device: "webgpu", retries: 10, stallMs: 3000 },
    sizes: { layers: 1, microBatches: 2 },
  };
  const drawn = drawHarm(draw), signal = nth % 4 === 3 ? "SIGSTOP" : "SIGKILL";
  const harm = drawn.moment === "start" ? { ...drawn, afterMs: draw(12_000) } : drawn;
  return victim(`${signal} of a worker on the GPU`, options, harmOne(harm, signal));
}

if (Deno.build.os !== "linux") {
  print("kills needs Linux, to find the processes of a program");
  Deno.exit(0);
}
await runCampaign("kills", 40, (count, seed) => [
  ...casesOf(count, seed, 25, "processes", processCase),
  ...casesOf(count, seed, 10, "threads", threadCase),
  ...casesOf(count, seed, 10, "early", earlyCase),
  ...casesOf(count, seed, 15, "programs", programCase),
  ...casesOf(count, seed, 20, "stops", stopCase),
  ...casesOf(count, seed, 5, "suspended", suspendedCase),
  ...casesOf(count, seed, 5, "slow", slowCase),
  ...hasSwiftShader ? casesOf(count, seed, 10, "gpu", gpuCase) : [],
], navigator.hardwareConcurrency);
