/**
 * The hosts of a run: the layout of its copies on the available workers.
 *
 * @module
 */

import type { StateOf } from "../../kernels/mod.ts";
import { chooseLayout, type HostLayout } from "../../schedules/internal.ts";
import type { TensorSource } from "../checkpoints/tensors.ts";
import type { TrainEvent } from "../options/train_events.ts";
import { pipelineCount } from "../pipeline/layout.ts";
import type { WorkerLost } from "../pipeline/protocol.ts";
import { type HostedRun, hostShares } from "../pipeline/step.ts";
import type { PlaceName } from "../runtime/mod.ts";
import type { Engine, EngineOptions } from "./engine.ts";

/** A move of a run to other workers, as the event `resize` reports it. */
export type Resize = Pick<
  TrainEvent & { readonly type: "resize" },
  "from" | "to" | "movedBytes" | "retaken" | "seconds"
>;

/** The reason of a move. */
export type ResizeCause =
  | { readonly cause: "lost"; readonly actor: string }
  | { readonly cause: "joined" };

/** Moves the copies of a run to other workers. */
export type Hosts = Omit<MovingHosts<EngineOptions>, "start">;

/** Options of {@linkcode MovingHosts}. */
export interface HostsOptions {
  /** The fewest workers. */
  readonly minWorkers: number;
  /** Returns the workers that could be there now; absent where lost ones can start again. */
  readonly available: (() => number) | undefined;
  /** Begins to start isolates for workers, before the engine is opened. */
  readonly prepare?: ((workers: number) => void) | undefined;
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
    const must = `there must be ${minWorkers} workers, received ${lost.remains!.workers}`;
    super(`Cannot continue: ${must}; ${lost.message}`);
  }
}

/** Returns whether isolates outlive a move: a GPU belongs to one process. */
export const outlivesMoves = (
  { freezes, system, devices }: Pick<EngineOptions, "freezes" | "system" | "devices">,
  isolate: PlaceName,
): boolean =>
  freezes === true && isolate !== "local" && !system &&
  devices.every(({ name }) => name !== "webgpu");

/** The hosts of a run: fewer when some are lost, and more when others join, up to those of the run. */
export class MovingHosts<R extends EngineOptions> {
  readonly available: HostsOptions["available"];
  /** The present number of workers. */
  workers: number;
  readonly #all: number;
  readonly #run: R;
  #current: R;
  #layout: HostLayout;

  /** @param openOf returns how a run opens its engine. */
  constructor(
    run: R,
    private readonly openOf: (run: R) => (state: StateOf<TensorSource>) => Promise<Engine>,
    readonly options: HostsOptions,
  ) {
    const { available } = options;
    const all = this.workers = this.#all = run.replicas * run.schedule.workers;
    this.available = available && (() => Math.min(all, available()));
    this.#run = this.#current = run;
    this.#layout = this.#layoutOn(all);
  }

  /** Opens an engine for the present layout. */
  start(state: StateOf<TensorSource>): Promise<Engine> {
    return this.openOf(this.#current)(state);
  }

  /** Returns the present layout, and the number of logical copies. */
  layout(): Resize["to"] {
    const { replicas, schedule } = this.#run;
    return { ...this.#layout, copies: replicas * pipelineCount(schedule) };
  }

  /** Returns whether the run is faster on that number of workers. */
  isFasterOn(workers: number): boolean {
    if (workers <= this.workers) return false;
    const { pipelines, depth } = this.#layoutOn(workers), now = this.#layout;
    return pipelines !== now.pipelines || depth !== now.depth;
  }

  /** Opens an engine for a number of workers. */
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
