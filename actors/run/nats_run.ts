/**
 * A run on hosts that meet at a server of NATS: this process leads it, and has the data.
 *
 * @module
 */

import { cpuFlags, refusal } from "../../kernels/internal.ts";
import type { RunOptions } from "../options/train_options.ts";
import { type HostOptions, joinRun } from "../transports/nats/host.ts";
import { isRunName, type MeetingPlace } from "../transports/nats/connection.ts";
import { Leader } from "../transports/nats/leader.ts";
import type { Engine } from "./engine.ts";
import type { PreparedRun, RunHosts } from "./events.ts";
import { type Facts, packageFacts } from "./program_facts.ts";

/** Default time within which hosts join, in milliseconds. */
export const JOIN_MS = 30_000;

/** Default time after which a silent host is lost, in milliseconds. */
const TIMEOUT_MS = 10_000;

const RUN_NAME = "the name of the run must be at most 64 letters, digits, - and _";

/** Options of a run on hosts. */
type HostsOptions = NonNullable<RunOptions["nats"]>;

/**
 * Refuses options that hosts cannot serve.
 *
 * @throws {TypeError} {@linkcode RangeError} naming the option.
 */
export function checkHosts({ nats, journal, system }: RunOptions): HostsOptions {
  const refuse = (must: string, received: string) =>
    refusal("train with runtime nats", must, received, TypeError);
  if (!nats) throw refuse("nats must say where hosts meet", "none");
  const name = JSON.stringify(nats.run);
  if (!isRunName(nats.run)) throw refuse(RUN_NAME, name);
  if (journal ?? system) throw refuse("there must be no journal and no given system", "one");
  return nats;
}

/** Instructions by which libraries of kernels choose how to add. */
const VECTORS = /^(avx|fma|amx|sve|asimd)/;

/** Returns facts that the leader and the hosts of a run must have in common. */
export function hostFacts(): Facts {
  const vectors = [...cpuFlags() ?? []].filter((flag) => VECTORS.test(flag)).sort();
  const cpu = [Deno.build.arch, ...vectors].join(" ");
  return { ...packageFacts(), "the vector instructions of the CPU": cpu };
}

/**
 * Waits until a host for each worker has joined a run.
 *
 * @throws {Error} when the server cannot be reached, or too few hosts join in time.
 */
export async function gatherHosts(
  { nats, replicas, schedule, announce, signal }: PreparedRun,
): Promise<RunHosts | undefined> {
  if (!nats) return undefined;
  const { joinMs = JOIN_MS, timeoutMs = TIMEOUT_MS, spares = 0 } = nats;
  const workers = replicas * schedule.workers, wanted = workers + spares;
  const leader = await Leader.open({ ...nats, timeoutMs, facts: hostFacts(), announce });
  announce(`waiting for ${wanted} hosts to join the run ${nats.run} at ${nats.url}`);
  await using opened = new AsyncDisposableStack();
  opened.use(leader);
  const there = await leader.gather(wanted, joinMs, signal);
  if (there < workers && !signal?.aborted) throw tooFew(workers, joinMs, there);
  if (there === 0) {
    throw Object.assign(new Error("Cannot train: interrupted before a host had joined"), {
      exitCode: 130,
    });
  }
  if (there < wanted && spares > 0) {
    announce(`the run starts with ${Math.max(0, there - workers)} of ${spares} spares`);
  }
  opened.move();
  return {
    transport: leader.transport,
    async gather(workers) {
      const there = await leader.gather(workers, joinMs, signal);
      if (there === 0) throw tooFew(1, joinMs, there);
      if (there < workers) announce(`${workers} workers share ${there} hosts`);
    },
    available: () => leader.available,
    releasing(engine) {
      const step = engine.step.bind(engine);
      return Object.assign(engine, {
        async step(request: Parameters<Engine["step"]>[0]) {
          const outcome = await step(request);
          if (leader.available > 0) leader.release();
          return outcome;
        },
      });
    },
    release: () => leader.release(),
    [Symbol.asyncDispose]: () => leader[Symbol.asyncDispose](),
  };
}

/** Another attempt may succeed: EX_TEMPFAIL of sysexits.h. */
function tooFew(workers: number, joinMs: number, there: number) {
  const must = `the hosts that join within ${joinMs / 1000} s must be at least ${workers}`;
  return Object.assign(new Error(`Cannot train: ${must}, received ${there}`), { exitCode: 75 });
}

/** Options of {@linkcode lendHost}. */
type LendOptions = Omit<HostOptions, "facts" | "joinMs"> & Pick<MeetingPlace, "joinMs">;

/** Lends the threads of this process to a run until it is over, or `signal` makes it leave. */
export const lendHost = ({ joinMs = JOIN_MS, ...options }: LendOptions): Promise<void> =>
  joinRun({ ...options, joinMs, facts: hostFacts() });
