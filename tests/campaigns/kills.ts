/**
 * Kills workers, the search for the native library and whole programs at random moments: whatever is
 * killed, the run, or the one that resumes it, ends with the weights of a run left in peace.
 *
 * @module
 */

import { join } from "node:path";
import { readCheckpoint } from "../../actors/mod.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { childProcesses } from "../actors/child_processes.ts";
import { inFolder, TINY_MODEL, trainJson } from "../console/command.ts";
import { Running, TRAIN } from "../console/running.ts";
import {
  type Case,
  casesOf,
  type Draw,
  drawHarm,
  type Fate,
  type Harm,
  kill,
  peace,
  runCampaign,
  suffer,
  type VictimOptions,
} from "./victim_helper.ts";

/** Kills of a whole program in a case: it is resumed after each. */
const KILLS_A_PROGRAM = 5;

const unharmed = peace();

function drawOptions(draw: Draw, nth: number): VictimOptions {
  const names = scheduleNames(), schedule = names[nth % names.length]!;
  // Layers and micro-batches enough for the stages and waves of each on four workers.
  const sizes = { layers: 6, microBatches: 8 };
  return { schedule, sizes, workers: draw(4) === 0 ? 4 : 2, device: "native", retries: 10 };
}

/** Whether a run ended with the weights of one left in peace; else what it said. */
async function judge(fate: Fate, options: VictimOptions): Promise<string | undefined> {
  const expected = await unharmed(options);
  if (fate.hash !== undefined && fate.hash === expected) return undefined;
  return `received ${fate.hash} for ${expected} after ${fate.seconds.toFixed(0)} s: ${fate.output}`;
}

/** `kill -9` of one of the victim's processes. */
const killOne = ({ moment, afterMs, which }: Harm) => (now: string, pid: number) => {
  if (now !== moment) return;
  setTimeout(() => {
    const children = childProcesses(pid), one = children[Math.floor(which * children.length)];
    if (one !== undefined) kill(one, "SIGKILL");
  }, afterMs);
};

function processCase(draw: Draw, nth: number): Case {
  const options = { ...drawOptions(draw, nth), isolation: "process" } as const;
  const harm = drawHarm(draw, false);
  return {
    name: `kill -9 of a process, ${JSON.stringify({ ...options, ...harm })}`,
    run: async () => await judge(await suffer(options, killOne(harm)), options),
  };
}

function threadCase(draw: Draw, nth: number): Case {
  const options = { ...drawOptions(draw, nth), thread: drawHarm(draw, true) };
  return {
    name: `end of a thread, ${JSON.stringify(options)}`,
    run: async () => await judge(await suffer(options), options),
  };
}

/** Whatever the program has started: the search for the library, or a worker that begins. */
function earlyCase(draw: Draw): Case {
  const options: VictimOptions = { isolation: "process", workers: 2, schedule: "1f1b" };
  const kills = [200, 400, 1000].map((lastingMs) => ({
    afterMs: draw.part() * lastingMs,
    which: draw.part(),
  }));
  return {
    name: `early kill -9, ${JSON.stringify(kills)}`,
    async run() {
      const fate = suffer({ ...options, retries: 10 }, (now, pid) => {
        if (now !== "begin") return;
        let afterMs = 0;
        for (const one of kills) {
          killOne({ moment: now, ...one, afterMs: afterMs += one.afterMs })(now, pid);
        }
      });
      return await judge(await fate, options);
    },
  };
}

/** A program that is killed, resumed, killed … and left in peace in the end. */
function programCase(draw: Draw): Case {
  const isolation = draw(4) === 0 ? "process" : "worker";
  const schedule = ["1f1b", "message-driven", "pipedream", "pipedream-2bw"][draw(4)]!;
  const moments = Array.from({ length: KILLS_A_PROGRAM }, () => ({
    isStarting: draw(3) === 0,
    afterMs: draw.part() * 500,
  }));
  const name = `kill -9 of a program, ${JSON.stringify({ isolation, schedule, moments })}`;
  const run = () => {
    let problem: string | undefined;
    return inFolder(async (folder) => {
      const text = join(folder, "text.txt"), out = join(folder, "out");
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
      if (last.weightsHash === whole.last.weightsHash) return;
      problem = `received ${last.weightsHash} for ${whole.last.weightsHash} after ${
        steps[1]
      } steps`;
    }).then(() => problem);
  };
  return { name, run };
}

await runCampaign("kills", 200, (count, seed) => [
  ...casesOf(count, seed, 45, "processes", processCase),
  ...casesOf(count, seed, 15, "threads", threadCase),
  ...casesOf(count, seed, 15, "early", earlyCase),
  ...casesOf(count, seed, 25, "programs", programCase),
]);
