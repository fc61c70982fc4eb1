/**
 * What a worker does between steps: it gets to know the others, says what it waits for, and saves.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import { formatAction } from "../../../schedules/mod.ts";
import type { Handlers } from "../../runtime/mod.ts";
import { type ShardOrder, writeShard } from "../../checkpoints/shards.ts";
import { type HeldState, parameterOf } from "../../checkpoints/tensors/held_state.ts";
import { assertFinite, NonFiniteError } from "../../commit/non_finite.ts";
import type { WorkerMessage, WorkerReport, WriteOutcome } from "../protocol.ts";
import type { OpenCopy } from "../stage_copies.ts";
import { joinStates, moved } from "../stage_states.ts";
import { tell, type Worker } from "./worker_record.ts";

/** What is no part of a step. */
export function pauseHandlers(worker: Worker): Partial<Handlers<WorkerMessage>> {
  const { ctx, init, copies, arrivals } = worker;
  return {
    Connect(peers) {
      worker.peers = peers;
      worker.state = "idle";
      tell(worker, { type: "Ready", worker: init.worker });
    },
    Report() {
      const next = worker.policy?.waitsFor;
      const waitsFor = worker.steps.length === 0
        ? "the next step"
        : next
        ? formatAction(next)
        : "messages";
      const ready = arrivals.ready.map(formatAction);
      ctx.reply({ waitsFor, ready } satisfies WorkerReport);
    },
    async Save() {
      const parts: StageState[] = [];
      for (const { kernels } of copies.all) parts.push(await ctx.busy(() => kernels.save()));
      const state = joinStates(parts);
      tell(worker, { type: "Saved", worker: init.worker, state }, moved(state));
    },
    async Fetch({ stage, parts }) {
      const values = await ctx.busy(() => firstCopy(worker, stage).kernels.read(parts));
      tell(worker, { type: "Fetched", values }, { transfer: [values.buffer] });
    },
    async Write({ order, step }) {
      const outcome = await ctx.busy(() => write(worker, order, step));
      tell(worker, { type: "Written", worker: init.worker, outcome });
    },
  };
}

/** Copies of a stage are equal: the first stands for all. */
function firstCopy({ copies }: Worker, stage: number): OpenCopy {
  const copy = copies.all.find((one) => one.stage === stage && one.rank === 0);
  if (copy) return copy;
  throw new RangeError(`Cannot read stage ${stage}: its first copy must be held here`);
}

/** Writes what first copies hold. */
async function write(
  worker: Worker,
  { stages, ...order }: ShardOrder,
  step: number,
): Promise<WriteOutcome> {
  const stageOf = (name: string) => (stages.get(name) ?? stages.get(parameterOf(name)))!;
  const held: HeldState = {
    shapes: order.shapes,
    holderOf: stageOf,
    async read(parts) {
      const values = await firstCopy(worker, stageOf(parts[0]!.name)).kernels.read(parts);
      assertFinite(parts, values, step);
      return values;
    },
  };
  try {
    return { shard: await writeShard(order, held) };
  } catch (error) {
    const { message } = error as Error;
    return { problem: message, isNonFinite: error instanceof NonFiniteError };
  }
}
