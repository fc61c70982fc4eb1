/**
 * The isolates of a run that may move: they outlive its engines.
 *
 * @module
 */

import type { WorkerMessage } from "../pipeline/protocol.ts";
import { mailboxBound, type SupervisorInit } from "../pipeline/supervisor_state.ts";
import { WORKER } from "../pipeline/worker.ts";
import { type HomeMessage, WORKER_HOME } from "../pipeline/worker_home.ts";
import { slicingOf, withoutStates } from "../pipeline/worker_state.ts";
import type { ActorRef, PlaceName, System } from "../runtime/mod.ts";
import { WorkerLostError } from "./recovery.ts";

type Spawned = ActorRef<WorkerMessage>;

/** The time in which an empty home answers, in milliseconds. */
const ANSWER_MS = 2000;

/** Options of {@linkcode Homes}. */
interface HomesOptions {
  /** Makes a system. */
  readonly open: () => System;
  /** Place of the isolates. */
  readonly isolate: PlaceName;
  /** Limit of their JavaScript heaps, in MiB; V8's unless given. */
  readonly memoryLimitMb?: number | undefined;
}

/** An isolate for a worker. */
interface Home {
  readonly ref: ActorRef<HomeMessage>;
  /** True if it may have a worker. A home that is still starting has none and does not answer yet. */
  isTaken: boolean;
  isGone: boolean;
}

/** The homes of the workers of a run. */
export class Homes {
  #system: System | undefined;
  #homes: Home[] = [];
  #opened = 0;

  /** Makes no home yet. */
  constructor(private readonly options: HomesOptions) {}

  /** The system of all homes. */
  get system(): System {
    return this.#system ??= this.options.open();
  }

  /** Starts homes until there is one for each worker. */
  prepare(workers: number): void {
    this.#homes = this.#homes.filter(({ isGone }) => !isGone);
    while (this.#homes.length < workers) this.#add();
  }

  /**
   * Starts the workers of a supervisor, one in each home.
   *
   * @param startMs The time in which an isolate starts.
   * @returns the same with the addresses of the workers, and without states.
   * @throws {WorkerLostError} when an isolate ends or does not start.
   */
  async start(init: SupervisorInit, startMs: number): Promise<SupervisorInit> {
    this.prepare(init.workers.length);
    for (const { ref } of this.#homes.splice(init.workers.length)) await this.system.stop(ref);
    const { worker: made = WORKER } = init;
    const asked = init.workers.map((worker, w) => {
      const capacity = mailboxBound({ ...worker, slicing: slicingOf(worker) }, init);
      const message = { type: "StartWorker", made, init: worker, capacity } as const;
      const home = this.#homes[w]!;
      home.isTaken = true;
      return this.#ask<Spawned>(home, message, startMs);
    });
    // All are asked before one may fail.
    const answers = await Promise.allSettled(asked);
    const failed = answers.findIndex(({ status }) => status === "rejected");
    if (failed >= 0) {
      const isWedged = !this.#homes[failed]!.isGone, worker = `worker-${failed}`;
      await this.close();
      const { reason } = answers[failed] as PromiseRejectedResult;
      const message = `${worker} failed at its start: ${reason.message}`;
      throw new WorkerLostError({ worker, kind: "exit", message, isWedged });
    }
    const spawned = answers.map((one) => (one as PromiseFulfilledResult<Spawned>).value);
    return { ...init, workers: init.workers.map(withoutStates), spawned };
  }

  /** Ends all workers; homes that answer remain. */
  async empty(): Promise<void> {
    await Promise.all(this.#homes.map(async (home) => {
      if (home.isGone || !home.isTaken) return;
      await this.#ask(home, { type: "StopWorker" }, ANSWER_MS).catch(() => this.#end(home));
      home.isTaken = false;
    }));
  }

  /** Ends the home of a worker. */
  end(worker: number): Promise<void> {
    return this.#end(this.#homes[worker]!);
  }

  /** Ends all homes; others may be started later. */
  async close(): Promise<void> {
    const system = this.#system;
    this.#system = undefined;
    this.#homes = [];
    await system?.stop();
  }

  async #end(home: Home): Promise<void> {
    home.isGone = true;
    await this.system.stop(home.ref);
  }

  #ask<R>({ ref }: Home, message: HomeMessage, timeoutMs: number): Promise<R> {
    return this.system.ask<HomeMessage, R>(ref, message, { lane: "control", timeoutMs });
  }

  #add(): void {
    const { isolate, memoryLimitMb } = this.options;
    const ref = this.system.spawn<undefined, HomeMessage>(WORKER_HOME, undefined, {
      id: `home-${this.#opened++}`,
      isolate,
      ...memoryLimitMb && { memoryLimitMb },
    });
    const home: Home = { ref, isTaken: false, isGone: false };
    this.#homes.push(home);
    this.system.watch(ref, () => home.isGone = true);
  }
}
