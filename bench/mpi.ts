/**
 * How the time of a short run grows with the ranks that it is on.
 *
 * @module
 */

import { type Conversation, linesOf, type Row, talkTo } from "./report.ts";
import { interleave, spread, spreadOf } from "./timing.ts";

/** Names of launchers, the first that is there is taken. */
const LAUNCHERS = ["mpirun.mpich", "mpirun", "mpirun.openmpi", "mpiexec"];

/** Open MPI wants to be told that root means it, and by default gives each rank one core. */
const OPEN_MPI = {
  args: ["--oversubscribe", "--bind-to", "none"],
  env: { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" },
};

/** How ranks are started here. */
interface RankLauncher {
  /** As it calls itself. */
  readonly version: string;
  /** Starts a module of this folder on so many ranks. */
  start(module: string, ranks: number): Conversation;
  /** Runs the command on so many ranks: the lines that it prints, as they come. */
  run(ranks: number, args: readonly string[]): AsyncGenerator<string>;
}

/** Starts a module on ranks. */
type Spawn = (
  ranks: number,
  path: string,
  args: readonly string[],
  stdin: "piped" | "null",
) => Deno.ChildProcess;

/**
 * Finds a launcher.
 *
 * @throws {Deno.errors.NotFound} when there is none.
 */
async function findLauncher(): Promise<RankLauncher> {
  for (const command of LAUNCHERS) {
    const version = await versionOf(command);
    if (version === undefined) continue;
    const { args, env } = version.includes("Open MPI") || version.includes("OpenRTE")
      ? OPEN_MPI
      : { args: [], env: {} };
    const spawn: Spawn = (ranks, path, own, stdin) => {
      const url = new URL(path, import.meta.url);
      const deno = [Deno.execPath(), "run", "-A", "--no-check", url.href, ...own];
      const all = [...args, "-n", `${ranks}`, ...deno];
      return new Deno.Command(command, { args: all, env, stdin, stdout: "piped" }).spawn();
    };
    return {
      version,
      start: (module, ranks) => talkTo(spawn(ranks, `./${module}`, [], "piped")),
      run: (ranks, own) => linesOf(spawn(ranks, "../cli.ts", own, "null").stdout),
    };
  }
  throw new Deno.errors.NotFound(
    "no launcher of MPI; on Debian, apt-get install mpich or openmpi-bin",
  );
}

/** What a launcher says of its version, in one line; undefined where there is none. */
async function versionOf(command: string): Promise<string | undefined> {
  try {
    const { stdout } = await new Deno.Command(command, { args: ["--version"] }).output();
    const text = new TextDecoder().decode(stdout), [, mpich] = /Version:\s*(\S+)/.exec(text) ?? [];
    return mpich ? `MPICH ${mpich}` : text.split("\n")[0]!.trim();
  } catch {
    return undefined;
  }
}

/** What an answer of a job tells. */
interface Timed {
  readonly ms: number;
  readonly cpuMs?: number;
  readonly waitPercent?: number;
}

const IDLE_ROUNDS = 3;

/** Rounds that do not count. */
const WARMUP = 3;

/** Measures all of it on two ranks. */
export async function mpiBench(): Promise<Row[]> {
  const launcher = await findLauncher();
  const links = launcher.start("links_job.ts", 2), actors = launcher.start("actors_job.ts", 2);
  const answers: Record<string, Timed[]> = {};
  const timed = (job: typeof links, question: string) => async () => {
    const answer = await job.ask<Timed>(question);
    (answers[question] ??= []).push(answer);
    return answer.ms;
  };
  const cases = {
    bare: timed(links, "bare"),
    link: timed(links, "link"),
    afar: timed(actors, "afar"),
    near: timed(actors, "near"),
    compute: timed(actors, "compute"),
    add: timed(actors, "add"),
    both: timed(actors, "both"),
  };
  const rounds = await interleave(cases, { rounds: 15, warmup: WARMUP, isAlone: false });
  const idle: number[] = [];
  for (let i = 0; i < IDLE_ROUNDS; i++) {
    idle.push((await actors.ask<{ percent: number }>("idle")).percent);
  }
  await Promise.all([links.close(), actors.close()]);
  type Ms = Parameters<Parameters<typeof spreadOf<keyof typeof cases>>[1]>[0];
  const row = (name: string, unit: string, figure: (ms: Ms) => number): Row => ({
    name,
    unit,
    measured: spreadOf(rounds, figure),
  });
  const cpu = (question: string) => spread(answers[question]!.map(({ cpuMs }) => cpuMs!)).median;
  const waits = answers.both!.slice(WARMUP).map(({ waitPercent }) => waitPercent!);
  return [
    {
      ...row("1 MB one way, MPI_Send and MPI_Recv", "µs", (ms) => 1e3 * ms.bare),
      note: launcher.version,
    },
    row("… between communication workers", "µs", (ms) => 1e3 * ms.link),
    { ...row("… ÷ MPI_Send and MPI_Recv", "×", (ms) => ms.link / ms.bare), target: { atMost: 2 } },
    row("… between actors of one rank, a hop of workers", "µs", (ms) => 1e3 * ms.near),
    row("… between actors of two ranks", "µs", (ms) => 1e3 * ms.afar),
    {
      ...row(
        "… ÷ communication workers and two hops",
        "×",
        (ms) => ms.afar / (ms.link + 2 * ms.near),
      ),
      target: { atMost: 1 },
    },
    row("computing alone", "ms", (ms) => ms.compute),
    {
      ...row("all-reduce of 16 MB alone", "ms", (ms) => ms.add),
      note: `CPU of both ranks ${cpu("add").toFixed(1)} ms`,
    },
    row("both at once", "ms", (ms) => ms.both),
    {
      ...row("… beyond computing alone", "%", (ms) => 100 * (ms.both / ms.compute - 1)),
      target: { atMost: 5 },
      note: `CPU of both ranks ${(cpu("both") - cpu("compute")).toFixed(1)} ms more`,
    },
    {
      name: "… of that waiting for the sums when all is computed",
      unit: "% of computing",
      measured: spread(waits),
      target: { atMost: 5 },
    },
    { name: "an idle rank", unit: "% of a core", measured: spread(idle), target: { atMost: 2 } },
  ];
}

const RANKS = [2, 4, 8, 16] as const;
const STEPS = 5;

/** Rounds that do not count. */
const RANKS_WARMUP = 1;

/** One model for all, so that only the ranks grow. */
const FLAGS = `train --runtime mpi --schedule 1f1b --layers 16 --hidden 16 --heads 2 --seq 8
  --device native --steps ${STEPS} --json`.split(/\s+/);

/** Milliseconds until the first step has ended, until the last has, and until all ranks have. */
type Times = readonly [first: number, last: number, end: number];

async function run(launcher: RankLauncher, ranks: number): Promise<Times> {
  const start = performance.now(), steps: number[] = [];
  for await (const line of launcher.run(ranks, [...FLAGS, "--workers", `${ranks}`])) {
    if ("step" in JSON.parse(line)) steps.push(performance.now() - start);
  }
  if (steps.length !== STEPS) throw new Error(`a run on ${ranks} ranks must take ${STEPS} steps`);
  return [steps[0]!, steps.at(-1)!, performance.now() - start];
}

/** Measures 2, 4, 8 and 16 ranks on this machine, in turns. */
export async function mpiRanksBench(): Promise<Row[]> {
  const launcher = await findLauncher(), times = new Map<number, Times[]>();
  const cases = Object.fromEntries(RANKS.map((ranks) => [`${ranks}`, async () => {
    const one = await run(launcher, ranks);
    times.set(ranks, [...times.get(ranks) ?? [], one]);
    return one[2];
  }]));
  const rounds = await interleave(cases, { rounds: 3, warmup: RANKS_WARMUP, isAlone: false });
  const [least, most] = [RANKS[0], RANKS.at(-1)!];
  const middle = (ranks: number, at: 0 | 1 | 2) => {
    const all = times.get(ranks)!.slice(RANKS_WARMUP).map((one) => one[at]).sort((a, b) => a - b);
    return Math.round(all[Math.floor(all.length / 2)]!);
  };
  return [
    ...RANKS.map((ranks): Row => ({
      name: `${ranks} ranks: start, ${STEPS} steps and end`,
      unit: "ms",
      measured: spreadOf(rounds, (ms) => ms[`${ranks}`]!),
      note: `first step at ${middle(ranks, 0)} ms, last at ${middle(ranks, 1)} ms`,
    })),
    {
      name: `${most} ranks ÷ ${least} ranks`,
      unit: "×",
      measured: spreadOf(rounds, (ms) => ms[`${most}`]! / ms[`${least}`]!),
      target: { atMost: most / least },
      note: launcher.version,
    },
  ];
}
