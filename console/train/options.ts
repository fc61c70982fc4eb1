/**
 * A run's options, as the flags say.
 *
 * @module
 */

import type { TrainOptions } from "../../actors/options/train_options.ts";
import { PROTOCOL_VERSION } from "../../actors/pipeline/protocol.ts";
import { packageActor } from "../../actors/sandbox/host.ts";
import { scheduleOptionsOf } from "../commands/schedule_flags.ts";
import type { RunComponents } from "./parts.ts";
import type { TrainRequest } from "./request.ts";

/**
 * The part of a run's options that the flags decide: all but the model and its data.
 *
 * @param program URL of the module that trains, which a journal wants to know.
 */
export function runOptions(
  { args, flags, schedule, microBatches, checkpoint }: TrainRequest,
  { optimizer, supervisor }: Pick<RunComponents, "optimizer" | "supervisor">,
  program?: string,
): Omit<TrainOptions, "model" | "data"> {
  return {
    steps: flags.steps,
    microBatches,
    workers: flags.workers,
    schedule,
    scheduleOptions: scheduleOptionsOf(flags),
    policy: flags.policy,
    layout: flags.layout,
    replicas: flags.replicas,
    sync: flags.sync,
    reduce: flags.reduce,
    bucketSize: flags["bucket-size"],
    coarsening: flags.coarsening,
    link: flags["emulate-link"],
    precision: flags.precision,
    lossScale: flags["loss-scale"],
    clip: flags.clip,
    dropLast: flags["drop-last"],
    device: flags.device,
    adapters: flags.adapters,
    threads: flags.threads,
    runtime: flags.runtime,
    isolation: flags.isolation,
    mpi: {
      library: flags["mpi-library"],
      map: flags.map,
      interface: flags["mpi-interface"],
      gather: flags.gather,
    },
    journal: flags.journal === undefined ? undefined : {
      path: flags.journal,
      payloads: flags["journal-messages"],
      configuration: { train: args },
      program: program === undefined ? [] : [program],
      whenFull: flags["journal-full"],
    },
    trace: isTraced(flags),
    retries: flags.retries,
    snapshots: flags.snapshots,
    stallMs: 1000 * flags["stall-timeout"],
    recompute: flags.recompute,
    recomputeInterval: flags["recompute-interval"],
    offload: flags.offload,
    memoryLimitBytes: flags["memory-limit"],
    optimizer: optimizer.value.options({
      beta1: flags.beta1,
      beta2: flags.beta2,
      momentum: flags.momentum,
      weightDecay: flags["weight-decay"],
    }),
    learningRate: {
      rate: flags.lr,
      schedule: flags["lr-schedule"],
      warmup: flags.warmup ?? 0,
      minRate: flags["min-lr"],
    },
    supervisor: supervisor.isBuiltIn ? undefined : specOf(supervisor),
    seed: flags.seed,
    weights: flags.weights,
    resume: checkpoint,
  };
}

/** Whether workers tell when each action ran. */
export const isTraced = ({ trace, dashboard }: TrainRequest["flags"]): boolean =>
  trace !== undefined || dashboard === true;

/** Returns the spec of an actor that the user has chosen, and so trusts. */
const specOf = (
  { from, export: exported, kind, integrity, lock }: RunComponents["supervisor"],
): TrainOptions["supervisor"] =>
  packageActor({
    ...{ from, export: exported ?? kind, protocol: PROTOCOL_VERSION, permissions: "inherit" },
    ...integrity !== undefined && { integrity },
    ...lock !== undefined && { lock },
  });
