/**
 * The hosts of a run: the layout of its copies on the workers that there are.
 *
 * @module
 */

import type { StateOf } from "../../kernels/mod.ts";
import { chooseLayout, type HostLayout } from "../../schedules/internal.ts";
import type { TensorSource } from "../checkpoints/tensors.ts";
import { pipelineCount } from "../pipeline/layout.ts";
import type { WorkerLost } from "../pipeline/protocol.ts";
import { type HostedRun, hostShares } from "../pipeline/step.ts";
import type { Engine, EngineOptions } from "./engine.ts";

/** A move of a run to other workers, as the event `resize` reports it. */
export interface Resize {
  readonly from: number;
  readonly to: HostLayout & { readonly copies: number };
  readonly movedBytes: number;
  readonly retaken: number;
  readonly seconds: number;
}

/** The reason of a move. */
export type ResizeCause =
  | { readonly cause: "lost"; readonly actor: string }
  | { readonly cause: "joined" };

/** Moves the copies of a run to other workers. */
export interface Hosts {
  /** The fewest workers. */
  readonly minWorkers: number;
  /** The present number of workers. */
  readonly workers: number;
  /** Returns the workers that could be there now; absent where lost ones can start again. */
  readonly available?: (() => number) | undefined;
  /** Returns whether the run is faster on that number of workers. */
  isFasterOn(workers: number): boolean;
  /** Begins to start isolates for workers, before {@linkcode Hosts.open}. */
  readonly prepare?: ((workers: number) => void) | undefined;
  /** Opens an engine for a number of workers. */
  open(workers: number, state: StateOf<TensorSource>): Promise<Engine>;
  /** Returns the present layout, and the number of logical copies. */
  layout(): Resize["to"];
  /** Gets each move. */
  readonly onResize: (cause: ResizeCause, resize: Resize) => void;
}

/** Fewer workers remain than the run must have. */
export class TooFewWorkersError extends Error {
  /** Identifies the error across copies of the class. */
  override readonly name = "TooFewWorkersError";
  /** Exit code for the program: another attempt may succeed (EX_TEMPFAIL of sysexits.h). */
  readonly exitCode = 75;

  /** Makes an error with the loss, and the numbers of workers. */
  constructor(lost: WorkerLost, minWorkers: number) {
    super(
      `Cannot continue: there must be ${minWorkers} workers, received ${
        lost.remains!.workers
      }; ${lost.message}`,
    );
  }
}

/** The hosts of a run: fewer when some are lost, and more when others join, up to those of the run. */
export class MovingHosts<R extends EngineOptions> implements Hosts {
  readonly minWorkers: number;
  readonly available: Hosts["available"];
  readonly prepare: Hosts["prepare"];
  readonly onResize: Hosts["onResize"];
  workers: number;
  readonly #all: number;
  readonly #run: R;
  readonly #openOf: (run: R) => (state: StateOf<TensorSource>) => Promise<Engine>;
  #current: R;
  #layout: HostLayout;

  /** @param openOf returns how a run opens its engine. */
  constructor(
    run: R,
    openOf: (run: R) => (state: StateOf<TensorSource>) => Promise<Engine>,
    { minWorkers, onResize, available, prepare }: Pick<
      Hosts,
      "minWorkers" | "onResize" | "available" | "prepare"
    >,
  ) {
    this.minWorkers = minWorkers;
    this.onResize = onResize;
    this.prepare = prepare;
    const all = this.workers = this.#all = run.replicas * run.schedule.workers;
    this.available = available && (() => Math.min(all, available()));
    this.#run = this.#current = run;
    this.#openOf = openOf;
    this.#layout = this.#layoutOn(all);
  }

  /** Opens an engine for the present layout. */
  start(state: StateOf<TensorSource>): Promise<Engine> {
    return this.#openOf(this.#current)(state);
  }

  layout(): HostLayout & { readonly copies: number } {
    const { replicas, schedule } = this.#run;
    return { ...this.#layout, copies: replicas * pipelineCount(schedule) };
  }

  isFasterOn(workers: number): boolean {
    if (workers <= this.workers) return false;
    const { pipelines, depth } = this.#layoutOn(workers), now = this.#layout;
    return pipelines !== now.pipelines || depth !== now.depth;
  }

  open(workers: number, state: StateOf<TensorSource>): Promise<Engine> {
    this.workers = workers;
    this.#layout = this.#layoutOn(workers);
    this.#current = workers < this.#all ? hostedOn(this.#run, this.#layout) : this.#run;
    return this.start(state);
  }

  #layoutOn(workers: number): HostLayout {
    const { replicas, schedule, model: { layers } } = this.#run, { microBatches } = schedule;
    if (workers >= this.#all) return { pipelines: replicas, depth: schedule.workers };
    return chooseLayout({ replicas, microBatches, layers: layers.length, workers });
  }
}

/**
 * Returns a run whose copies other pipelines host. Traces would name other workers. The layout and the
 * buckets that were asked for belong to stages of another size; neither changes a bit.
 */
function hostedOn<R extends EngineOptions>(run: R, layout: HostLayout): R {
  const hosted: HostedRun = { ...run, layout }, replicas = layout.pipelines;
  const [schedule] = hostShares(hosted, run.replicas * run.schedule.microBatches).schedules;
  const { starts: _starts, ...model } = run.model, { bucketSize: _size, ...stage } = run.stage;
  return { ...run, hosted, schedule: schedule!, replicas, model, stage, isTraced: false };
}
