/**
 * The isolates of a run that may move: they outlive its engines.
 *
 * @module
 */

import type { WorkerMessage } from "../pipeline/protocol.ts";
import { mailboxBound, type SupervisorInit } from "../pipeline/supervisor_state.ts";
import { WORKER } from "../pipeline/worker.ts";
import { type HomeMessage, WORKER_HOME } from "../pipeline/worker_home.ts";
import { withoutStates, type WorkerInit } from "../pipeline/worker_state.ts";
import type { ActorRef, PlaceName, System } from "../runtime/mod.ts";
import { WorkerLostError } from "./recovery.ts";

type Spawned = ActorRef<WorkerMessage>;

/** The time in which an empty home answers, in milliseconds. */
const ANSWER_MS = 2000;

/** The time after the start of workers until a spare home starts, in milliseconds. */
const SPARE_MS = 1000;

/** Options of {@linkcode Homes}. */
interface HomesOptions {
  /** Makes a system. */
  readonly open: () => System;
  /** Place of the isolates. */
  readonly isolate: PlaceName;
  /** Limit of their JavaScript heaps, in MiB. Default: V8's. */
  readonly memoryLimitMb?: number | undefined;
  /** True to keep a spare home. */
  readonly hasSpare: boolean;
}

/** An isolate for a worker. */
interface Home {
  readonly ref: ActorRef<HomeMessage>;
  /** True if it may have a worker. A home that is still starting has none and does not answer yet. */
  isTaken: boolean;
  isGone: boolean;
  /** True if it was a spare that has compiled the kernels. */
  isWarm?: boolean;
  /** The stages of its worker. */
  stages?: string;
  /** True if it keeps them open, with the weights and moments of the last step. */
  isKept?: boolean;
}

/** Describes the open stages of a worker: those of equal descriptions are interchangeable. */
function describeStages({ held, mirrors = [], device, stage, halves }: WorkerInit): string {
  const all = [held, mirrors].map((copies) =>
    copies.map(({ copy, program, isRecomputed }) => {
      return [copy, isRecomputed, program.layers.map(({ prefix }) => prefix)];
    })
  );
  return JSON.stringify([device, stage, halves, all]);
}

/** The homes of the workers of a run. */
export class Homes {
  #system: System | undefined;
  #homes: Home[] = [];
  /** A home without a worker, which takes the place of the next ended home. */
  #spare: Home | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #opened = 0;

  /** Makes no home yet. */
  constructor(private readonly options: HomesOptions) {}

  /** The system of all homes. */
  get system(): System {
    return this.#system ??= this.options.open();
  }

  /** Starts homes until each worker has a home. The spare or a new one replaces an ended home. */
  prepare(workers: number): void {
    let missing = workers - this.#homes.filter(({ isGone }) => !isGone).length;
    this.#homes = this.#homes.flatMap((home) =>
      !home.isGone ? home : missing-- > 0 ? this.#next() : []
    );
    while (this.#homes.length < workers) this.#homes.push(this.#next());
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
      const capacity = mailboxBound(worker, init);
      const home = this.#homes[w]!, stages = describeStages(worker);
      const isKept = home.isKept && home.stages === stages;
      const own = isKept ? { ...withoutStates(worker), isKept } : worker;
      Object.assign(home, { stages, isTaken: true, isKept: false });
      return this.#ask<Spawned>(home, { type: "StartWorker", made, init: own, capacity }, startMs);
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
    if (this.options.hasSpare) this.#keepSpare(made, init.workers.map(withoutStates));
    const spawned = answers.map((one) => (one as PromiseFulfilledResult<Spawned>).value);
    return { ...init, workers: init.workers.map(withoutStates), spawned };
  }

  /** Ends all workers; homes that answer remain, and keep the stages of workers that were frozen. */
  async empty(): Promise<void> {
    await Promise.all(this.#homes.map(async (home) => {
      // A spare may have been stopped since it was warm.
      if (home.isGone || !(home.isTaken || home.isWarm)) return;
      home.isKept = await this.#ask<boolean>(home, { type: "StopWorker" }, ANSWER_MS)
        .catch(async () => (await this.#end(home), false));
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
    clearTimeout(this.#timer);
    this.#system = this.#spare = undefined;
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

  /** Returns a home for a worker: the spare, if it is there. */
  #next(): Home {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare?.isGone === false ? spare : this.#start();
  }

  /** Starts a spare with the kernels of workers, when their first steps are over. */
  #keepSpare(made: SupervisorInit["worker"] & object, workers: readonly WorkerInit[]): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      const { system } = this;
      try {
        const spare = this.#spare = this.#spare?.isGone === false ? this.#spare : this.#start();
        spare.isWarm = await this.#ask<boolean>(spare, { type: "WarmUp", made, workers }, Infinity);
        system.watch(spare.ref, () => spare === this.#spare && this.#keepSpare(made, workers));
      } catch {
        // A spare that cannot start is not replaced.
      }
    }, SPARE_MS);
  }

  #start(): Home {
    const { isolate, memoryLimitMb } = this.options;
    const ref = this.system.spawn<undefined, HomeMessage>(WORKER_HOME, undefined, {
      id: `home-${this.#opened++}`,
      isolate,
      ...memoryLimitMb && { memoryLimitMb },
    });
    const home: Home = { ref, isTaken: false, isGone: false };
    this.system.watch(ref, () => home.isGone = true);
    return home;
  }
}
