/**
 * Ends of runs on the GPU at random moments, in peace, by signals, and by `kill -9` or `kill -STOP`
 * of a worker or `kill -9` of the program: the exit code is right, no library writes to standard error, no process and no file is
 * left, and whatever recovers has the weights of a run left in peace.
 *
 * @module
 */

import { join } from "node:path";
import { inFolder, jsonLines } from "../console/command.ts";
import { Running, TRAIN } from "../console/running.ts";
import { hasSwiftShader } from "../gpu.ts";
import { print } from "../../console/print.ts";
import {
  type Case,
  casesOf,
  type Draw,
  drawHarm,
  kill,
  peace,
  runCampaign,
  suffer,
  type VictimOptions,
} from "./victim_helper.ts";
import { childProcesses } from "../actors/child_processes.ts";

/** Processes of workers notice within this time that their root is gone. */
const GRACE_MS = 20_000;

/** About the time from the start to the first step, most of which compiles shaders. */
const START_MS = 12_000;

const SMALL_RUN = [
  ...["--layers", "1", "--hidden", "16", "--heads", "2", "--seq", "8", "--micro-batch", "2"],
  ...["--micro-batches", "2", "--device", "webgpu", "--workers", "2", "--schedule", "1f1b"],
];

/** All that a run itself may say on standard error. */
const TOLD =
  /^(Task train .*|device webgpu computes on .*|Finishing the step under way.*|Interrupted (after|before) .*|)$/;

/** What was written by others. */
const strange = (stderr: string) => stderr.split("\n").filter((line) => !TOLD.test(line));

/** Runs a command with its own folder for temporary files, and looks at what is left of it. */
async function ending(
  args: readonly string[],
  hurt: (running: Running) => Promise<unknown>,
  codes: readonly number[],
): Promise<string | undefined> {
  return await inFolder(async (folder) => {
    const temporary = join(folder, "tmp"), out = join(folder, "out");
    await Deno.mkdir(temporary);
    const saving = ["--out", out, "--checkpoint-every", "1"];
    // Libraries look for a display there, and say so where there is none.
    const env = { TMPDIR: temporary, XDG_RUNTIME_DIR: "" };
    const running = new Running([...args, ...saving, "--json"], false, env);
    await hurt(running);
    const { code, stdout, stderr } = await running.end(GRACE_MS);
    const left = [...Deno.readDirSync(temporary)].map(({ name }) => name);
    const isWell = codes.includes(code) && strange(stderr).length === 0 && left.length === 0;
    if (stdout.endsWith("\n")) jsonLines(stdout);
    return isWell ? undefined : JSON.stringify({ code, left, strange: strange(stderr), stdout });
  });
}

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function peaceCase(_: Draw, nth: number): Case {
  const runtime = [[], [], ["--runtime", "serial"], ["--runtime", "local"]][nth % 4]!;
  const args = ["task", "train", ...SMALL_RUN, "--steps", "5", ...runtime];
  return {
    name: `a run in peace ${runtime}`,
    run: () => ending(args, () => Promise.resolve(), [0]),
  };
}

/** While the run starts, or once it has taken steps and writes checkpoints. */
function drawMoment(draw: Draw): { readonly isStarting: boolean; readonly afterMs: number } {
  const isStarting = draw(2) === 0;
  return { isStarting, afterMs: draw(isStarting ? START_MS : 1000) };
}

const untilThen = async (
  running: Running,
  { isStarting, afterMs }: ReturnType<typeof drawMoment>,
) => {
  if (!isStarting) await running.printed("stdout", /"step":1,/);
  await wait(afterMs);
};

function signalCase(draw: Draw, nth: number): Case {
  const signal = (["SIGINT", "SIGTERM"] as const)[nth % 2]!;
  // What reaches all processes is Ctrl-C; SIGTERM to a worker ends that worker.
  const to = signal === "SIGTERM" ? "process" : (["process", "group"] as const)[(nth >> 1) % 2]!;
  const runtime = ["workers", "workers", "serial", "local"][draw(4)]!, moment = drawMoment(draw);
  const args = [...TRAIN, ...SMALL_RUN, "--steps", "100000", "--runtime", runtime];
  // SIGTERM before anybody listens ends a program by itself.
  const codes = signal === "SIGTERM" && moment.isStarting ? [130, 143] : [130];
  return {
    name: `${signal} to the ${to}, ${JSON.stringify({ runtime, ...moment })}`,
    run: () =>
      ending(args, async (running) => {
        await untilThen(running, moment);
        running.interrupt(to, signal);
      }, codes),
  };
}

/** The program alone: its workers must notice. */
function programCase(draw: Draw): Case {
  const moment = drawMoment(draw), args = [...TRAIN, ...SMALL_RUN, "--steps", "100000"];
  return {
    name: `kill -9 of a program, ${JSON.stringify(moment)}`,
    run: () =>
      ending(args, async (running) => {
        await untilThen(running, moment);
        running.kill();
      }, [137]),
  };
}

const unharmed = peace();

/** A worker does not move for so long before it is ended; shaders take longer to compile. */
const STALL_MS = 3000;

/** A worker is killed, or stopped for ever. */
function workerCase(draw: Draw, nth: number): Case {
  const signal = nth % 4 === 3 ? "SIGSTOP" : "SIGKILL";
  const options: VictimOptions = {
    ...{ schedule: "1f1b", workers: 2, device: "webgpu", retries: 10, stallMs: STALL_MS } as const,
    ...{ sizes: { layers: 1, microBatches: 2 } },
  };
  const drawn = drawHarm(draw, false);
  const afterMs = drawn.moment === "start" ? draw(START_MS) : drawn.afterMs;
  const harm = { ...drawn, afterMs };
  return {
    name: `${signal} to a worker, ${JSON.stringify(harm)}`,
    async run() {
      const { hash, output, seconds } = await suffer(options, (now, pid) => {
        if (now !== harm.moment) return;
        setTimeout(() => {
          const children = childProcesses(pid);
          const one = children[Math.floor(harm.which * children.length)];
          if (one !== undefined) kill(one, signal);
        }, harm.afterMs);
      });
      const expected = await unharmed(options);
      if (hash !== undefined && hash === expected) return undefined;
      return `received ${hash} for ${expected} after ${seconds.toFixed(0)} s: ${output}`;
    },
  };
}

if (!hasSwiftShader) {
  print("gpu_ends needs SwiftShader, of Debian's package chromium");
  Deno.exit(0);
}
await runCampaign("gpu_ends", 80, (count, seed) => [
  ...casesOf(count, seed, 25, "peace", peaceCase),
  ...casesOf(count, seed, 25, "signals", signalCase),
  ...casesOf(count, seed, 25, "programs", programCase),
  ...casesOf(count, seed, 25, "workers", workerCase),
]);
