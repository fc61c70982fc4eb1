/**
 * What a worker does between steps: it gets to know the others, says what it waits for, and saves.
 *
 * @module
 */

import type { StageState } from "../../../kernels/mod.ts";
import { formatAction } from "../../../schedules/mod.ts";
import type { Handlers } from "../../runtime/mod.ts";
import { type ShardOrder, writeShard } from "../../checkpoints/shards.ts";
import { assertFinite, NonFiniteError } from "../../commit/non_finite.ts";
import type { WorkerMessage, WorkerReport, WriteOutcome } from "../protocol.ts";
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
    async Write({ order, step }) {
      const outcome = await ctx.busy(() => write(worker, order, step));
      tell(worker, { type: "Written", worker: init.worker, outcome });
    },
  };
}

/** Writes what first copies hold: the others are equal. */
async function write({ copies }: Worker, order: ShardOrder, step: number): Promise<WriteOutcome> {
  const parts: StageState[] = [];
  for (const { kernels, rank } of copies.all) if (rank === 0) parts.push(await kernels.save());
  const state = joinStates(parts);
  try {
    await assertFinite(state, step);
    return { shard: await writeShard(order, state) };
  } catch (error) {
    const { message } = error as Error;
    return { problem: message, isNonFinite: error instanceof NonFiniteError };
  }
}
