/**
 * What the supervisor does when a worker is gone, or nothing moves.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { reportStall } from "./stall_report.ts";
import { type Supervisor, underWay } from "./supervisor_record.ts";

/** What tells that a worker is gone. */
export function lossHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
  const { ctx, workers, replies } = supervisor;
  return {
    async Stalled({ forMs }) {
      const lost = await reportStall(ctx, workers, underWay(supervisor), forMs);
      supervisor.state = "lost";
      replies.giveUp(lost);
    },
    WorkerDown({ down }) {
      const { steps } = supervisor;
      supervisor.state = "lost";
      replies.lose(down, steps.length > 0 ? underWay(supervisor) : undefined);
    },
  };
}
