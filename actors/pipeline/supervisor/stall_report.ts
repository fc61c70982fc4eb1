/**
 * Who waits for what, from whom, when nothing moves any more.
 *
 * @module
 */

import type { WorkerLost, WorkerReport } from "../protocol.ts";
import type { ActorRef, Context, Message } from "../../runtime/mod.ts";

/** A worker that says nothing for so long, in the control lane, is not coming back. */
const REPORT_TIMEOUT_MS = 1000;

/**
 * Asks every worker what it waits for.
 *
 * @param when what stalled: `step 4`.
 * @param stallMs how long nothing has moved.
 */
export async function reportStall<M extends Message>(
  ctx: Context<M>,
  workers: readonly ActorRef<{ readonly type: "Report" }>[],
  when: string,
  stallMs: number,
): Promise<WorkerLost> {
  const timeoutMs = Math.min(REPORT_TIMEOUT_MS, stallMs);
  const options = { lane: "control", timeoutMs } as const;
  const reports = await Promise.all(
    workers.map((worker) =>
      ctx.ask<{ readonly type: "Report" }, WorkerReport>(worker, { type: "Report" }, options)
        .catch(() => undefined)
    ),
  );
  const lines = reports.map((report, w) =>
    !report
      ? `${workers[w]!.id} does not answer`
      : `${workers[w]!.id} waits for ${report.waitsFor}, with [${report.ready}] ready`
  );
  const wedged = reports.findIndex((report) => !report), isWedged = wedged >= 0;
  const message = `${when} stalled for ${stallMs} ms: ${lines.join("; ")}`;
  return { worker: workers[Math.max(0, wedged)]!.id, kind: "exit", message, isWedged };
}
