/**
 * Kills and stops workers, the search for the native library and whole programs at random moments:
 * the run, or the resumed run, ends with the weights of an undisturbed run. Healthy runs that are slow
 * or suspended are never reported as stalled.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { parseArgs } from "@std/cli/parse-args";
import { join } from "node:path";
import { readCheckpoint } from "../../actors/checkpoints/read.ts";
import { print, printError } from "../../console/terminal.ts";
import { scheduleNames } from "../../schedules/mod.ts";
import { childProcesses } from "../actors/child_processes.ts";
import { inFolder, TINY_MODEL, trainJson } from "../console/command.ts";
import { Running, TRAIN } from "../console/running.ts";
import { NATS, RUN, TestServer } from "../actors/runtime/nats/server.ts";
import { hasSwiftShader } from "../gpu.ts";
import { type Case, casesOf, type Draw, runCampaign } from "./cases_helper.ts";
import {
  drawHarm,
  type Harm,
  type Hurt,
  inPeace,
  kill,
  suffer,
  survive,
  type VictimOptions,
} from "./victim_helper.ts";

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
const harmOne = (
  { moment, afterMs, which }: Harm,
  signal: Deno.Signal = "SIGKILL",
  forMs?: number,
  all: (pid: number) => readonly number[] = childProcesses,
): Hurt =>
(now, pid) => {
  if (now !== moment) return;
  setTimeout(() => {
    const processes = all(pid), one = processes[Math.floor(which * processes.length)];
    if (one === undefined || !kill(one, signal) || forMs === undefined) return;
    setTimeout(() => kill(one, "SIGCONT"), forMs);
  }, afterMs);
};

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
  victim("end of a thread", { ...drawOptions(draw, nth), ends: [drawHarm(draw, true)] });

/** Any child process: the search for the library, or a starting worker. */
function earlyCase(draw: Draw): Case {
  const options = { isolation: "process", workers: 2, schedule: "1f1b", retries: 10 } as const;
  let afterMs = 0;
  const kills = [200, 400, 1000].map((lastingMs): Harm => ({
    moment: "begin",
    afterMs: afterMs += draw.part() * lastingMs,
    which: draw.part(),
  }));
  const hurt: Hurt = (now, pid) => kills.forEach((one) => harmOne(one)(now, pid));
  return victim("early kill -9", options, hurt);
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

/** Layouts of long runs: each stage has several copies, or a mirror. */
const LAYOUTS: readonly VictimOptions[] = [
  { workers: 2, replicas: 2 },
  { workers: 2, replicas: 4 },
  { workers: 4, buddy: true },
  { workers: 4, schedule: "chimera" },
];

/** Deaths in a long run, and the steps from one to the next. */
const DEATHS = 5, STEPS_A_DEATH = 15;

/** Time after which a silent host is lost, and within which hosts end with their run. */
const HOST_MS = 2500, ENDING_MS = 10_000;

/** Draws the deaths of a long run; one in three comes while the run recovers from the one before. */
function drawDeaths(draw: Draw): Harm[] {
  const deaths: Harm[] = [];
  for (let nth = 0; nth < DEATHS; nth++) {
    const before = draw(3) === 0 ? deaths.at(-1) : undefined, which = draw.part();
    const moment = before?.moment ?? `step ${STEPS_A_DEATH * (nth + 1) - draw(STEPS_A_DEATH)}`;
    const afterMs = before ? before.afterMs + 600 * draw.part() : 60 * draw.part();
    deaths.push({ moment, afterMs, which });
  }
  return deaths;
}

/** What long runs have shown. */
const COUNTS = [
  ...["runs", "equal", "deaths", "moves", "restarts", "retaken", "move ms", "restart ms", "left"],
];
const shown = new Map<string, Map<string, number>>();

/** Adds to a count. */
type Count = (name: string, more: number) => void;

function counting(row: string): { add: Count; most: Count } {
  const counts = shown.getOrInsertComputed(row, () => new Map(COUNTS.map((name) => [name, 0])));
  return {
    add: (name, more) => counts.set(name, counts.get(name)! + more),
    most: (name, value) => counts.set(name, Math.max(counts.get(name)!, value)),
  };
}

/** Reads the lines of a run: losses, and the longest from the notice of one to the next commit. */
function watching({ add, most }: ReturnType<typeof counting>, isExit: boolean): Hurt {
  let noticed: number | undefined, recovery = "";
  return (line) => {
    const now = performance.now(), [, type, rest = ""] = /^(\w+) ?(.*)$/.exec(line) ?? [];
    const event = type === "resize" || type === "failure" ? JSON.parse(rest) : {};
    const isLoss = type === "failure" || event.cause === "lost";
    if (type === "harmed" || isExit && isLoss) add("deaths", 1);
    if (isLoss) add(type === "resize" ? "moves" : "restarts", 1);
    if (type === "resize") add("retaken", event.retaken);
    if (type === "told" && /^(?!workers have).* the run continues /.test(rest)) {
      noticed ??= now;
      recovery = rest.endsWith("committed step") ? "restart ms" : recovery || "move ms";
    }
    if (type !== "step" || noticed === undefined) return;
    most(recovery, Math.round(now - noticed));
    [noticed, recovery] = [undefined, ""];
  };
}

/** Hosts that are started again whenever they end, as by systemd, until their run is over. */
class Hosts {
  readonly #living = new Map<Deno.ChildProcess, number>();
  #isOver = false;

  constructor(server: TestServer, count: number) {
    for (let number = 1; number <= count; number++) this.#keep(server, number);
  }

  async #keep(server: TestServer, number: number): Promise<void> {
    while (!this.#isOver) {
      const host = server.hostProcess(number);
      this.#living.set(host, performance.now());
      await host.status;
      this.#living.delete(host);
    }
  }

  /** The ids of the processes. */
  get ids(): number[] {
    return [...this.#living.keys()].map(({ pid }) => pid);
  }

  /** Waits for the end of the hosts; returns how many were left, and kills them. */
  async end(): Promise<number> {
    this.#isOver = true;
    const over = performance.now();
    while (this.#living.size > 0 && performance.now() - over < ENDING_MS) await delay(50);
    const left = [...this.#living];
    for (const [host] of left) host.kill("SIGKILL");
    await Promise.all(left.map(([host]) => host.status));
    // A host that was starting has not met the run.
    return left.filter(([, started]) => over - started > ENDING_MS).length;
  }
}

/** The deaths of workers, by runtime. */
const RUNTIMES = {
  threads: ["terminate", "exit"],
  processes: ["SIGKILL", "SIGSTOP", "exit"],
  nats: ["SIGKILL", "SIGSTOP"],
} as const;

/** A long run whose workers die at random moments and are replaced. */
const longCase = (runtime: keyof typeof RUNTIMES) => (draw: Draw, nth: number): Case => {
  const layout = LAYOUTS[nth % LAYOUTS.length]!, kinds = RUNTIMES[runtime];
  const kind = kinds[Math.floor(nth / LAYOUTS.length) % kinds.length]!, deaths = drawDeaths(draw);
  const stops = deaths.map(() => draw(2 * HOST_MS)), { buddy: _, ...hosted } = layout;
  const count = layout.workers! * (layout.replicas ?? 1), name = JSON.stringify(layout);
  const faults = deaths.map(() =>
    ({ kind: "exit", worker: draw(count), afterActions: draw(200) }) as const
  );
  const steps = STEPS_A_DEATH * (DEATHS + 1);
  const common = { device: "native", sizes: { layers: 4, steps }, every: 10 } as const;
  const options: VictimOptions = {
    ...{ ...common, ...layout, retries: 1000, stallMs: STALL_MS },
    ...runtime === "processes" && { isolation: "process" },
    ...kind === "terminate" && { ends: deaths },
    ...kind === "exit" && { faults },
  };
  const run = async () => {
    const counts = counting(`${runtime} ${name}`), watch = watching(counts, kind === "exit");
    const isHosted = runtime === "nats";
    await using server = isHosted ? await TestServer.start(count) : undefined;
    const hosts = server && new Hosts(server, count);
    const victims = (pid: number) => {
      const ids = hosts?.ids ?? childProcesses(pid);
      if (ids.length > 0) counts.add("deaths", 1);
      return ids;
    };
    const harms = kind === "SIGKILL" || kind === "SIGSTOP"
      ? deaths.map((harm, i) =>
        harmOne(harm, kind, kind === "SIGSTOP" ? stops[i] : undefined, victims)
      )
      : [];
    const nats = server && { url: server.url, run: RUN, credentials: server.credentials(0) };
    const place = nats &&
      { runtime: "nats", nats: { ...nats, joinMs: 60_000, timeoutMs: HOST_MS } };
    const { hash, output, hasLeft } = await suffer(
      { ...options, ...place as VictimOptions },
      (line, pid) => {
        watch(line, pid);
        for (const harm of harms) harm(line, pid);
      },
    );
    const left = Number(hasLeft) + await (hosts?.end() ?? 0);
    const expected = await inPeace({ ...common, ...hosted, runtime: "serial" });
    counts.add("runs", 1);
    counts.add("equal", Number(hash !== undefined && hash === expected));
    counts.add("left", left);
    if (hash === undefined || hash !== expected) {
      return `received ${hash} for ${expected}: ${output}`;
    }
    return left > 0 ? `${left} processes were left: ${output}` : undefined;
  };
  return { name: `${kind} of ${runtime}, ${name}`, run };
};

/** The table of long runs. */
const table = () =>
  shown.size === 0 ? [] : [
    COUNTS.join("\t"),
    ...[...shown].map(([row, counts]) => [...counts.values(), row].join("\t")),
  ];

if (Deno.build.os !== "linux") {
  print("kills needs Linux, to find the processes of a program");
  Deno.exit(0);
}
const { runtime } = parseArgs(Deno.args, { string: ["runtime"] });
if (runtime !== undefined && !(runtime in RUNTIMES)) {
  printError(
    `Cannot run kills: --runtime must be ${Object.keys(RUNTIMES).join(", ")}, received ${runtime}`,
  );
  Deno.exit(2);
}
const long = (count: number, seed: number, percent: number, names = Object.keys(RUNTIMES)) =>
  names.filter((name) => name !== "nats" || NATS.isThere).flatMap((name) =>
    casesOf(count, seed, percent, `long ${name}`, longCase(name as keyof typeof RUNTIMES))
  );
await runCampaign(
  "kills",
  40,
  (count, seed) => [
    ...runtime !== undefined ? long(count, seed, 100, [runtime]) : [
      ...casesOf(count, seed, 25, "processes", processCase),
      ...casesOf(count, seed, 10, "threads", threadCase),
      ...casesOf(count, seed, 10, "early", earlyCase),
      ...casesOf(count, seed, 15, "programs", programCase),
      ...casesOf(count, seed, 20, "stops", stopCase),
      ...casesOf(count, seed, 5, "suspended", suspendedCase),
      ...casesOf(count, seed, 5, "slow", slowCase),
      ...hasSwiftShader ? casesOf(count, seed, 10, "gpu", gpuCase) : [],
      ...long(count, seed, 20),
    ],
  ],
  navigator.hardwareConcurrency,
  table,
);
