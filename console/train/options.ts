/**
 * A run's options, as the flags say.
 *
 * @module
 */

import { type TrainOptions } from "../../actors/options/train_options.ts";
import { readGroups, readLora } from "../../actors/options/limits.ts";
import { TRAIN } from "../../actors/options/train_table.ts";
import { PROTOCOL_VERSION } from "../../actors/pipeline/protocol.ts";
import { packageActor } from "../../actors/sandbox/host.ts";
import { optionsOfFlags } from "../flag.ts";
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
  const given = optionsOfFlags(TRAIN, flags) as unknown as Omit<TrainOptions, "model" | "data">;
  const { beta1, beta2, momentum, "weight-decay": weightDecay, journal, ema } = flags;
  const groups = flags["param-groups"];
  return {
    ...given,
    lora: flags.lora === undefined ? undefined : readLora(flags.lora),
    schedule,
    microBatches,
    scheduleOptions: scheduleOptionsOf(flags),
    learningRate: { ...given.learningRate as object, warmup: flags.warmup ?? 0 },
    journal: journal === undefined ? undefined : {
      ...given.journal,
      path: journal,
      configuration: { train: args },
      program: program === undefined ? [] : [program],
    },
    nats: flags.runtime === "nats" ? given.nats : undefined,
    trace: isTraced(flags),
    optimizer: {
      ...optimizer.value.options({ beta1, beta2, momentum, weightDecay }),
      ...ema !== undefined && { ema },
      ...groups !== undefined && { groups: readGroups(groups) },
    },
    supervisor: supervisor.isBuiltIn ? undefined : specOf(supervisor),
    resume: checkpoint,
    out: undefined,
    checkpoint: undefined,
    evaluation: undefined,
  };
}

/** Returns whether workers tell when each action ran. */
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
