/**
 * What the supervisor is asked while the pipe is empty: to start, to evaluate, to save.
 *
 * @module
 */

import type { Handlers } from "../../runtime/mod.ts";
import type { SupervisorMessage } from "../protocol.ts";
import { joinStates, moved } from "../stage_states.ts";
import { gather } from "./gather.ts";
import { type Supervisor, tellAll } from "./supervisor_record.ts";

/** What is asked while the pipe is empty. */
export function pauseHandlers(
  supervisor: Supervisor,
): Partial<Handlers<SupervisorMessage>> {
  const { ctx, init, workers, replies, evaluations } = supervisor;
  const goIdle = () => void (supervisor.state = "idle");
  return {
    Start() {
      const reply = replies.owe();
      supervisor.takeReady = gather([...workers.keys()], () => {
        goIdle();
        reply(undefined);
      });
      tellAll(supervisor, { type: "Connect", supervisor: ctx.self, workers });
    },
    Ready: ({ worker }) => supervisor.takeReady(worker, undefined),
    Evaluate({ microBatches }) {
      const reply = replies.owe();
      supervisor.state = "evaluating";
      supervisor.pause = "an evaluation";
      evaluations.begin(microBatches, (losses) => {
        goIdle();
        reply(losses);
      });
    },
    Save() {
      const reply = replies.owe();
      supervisor.state = "saving";
      supervisor.pause = "a save";
      // Copies of a stage are equal: the first of each has it all.
      const { copies } = init.workers[0]!;
      const first = [...new Set(copies.map(([copy]) => copy!.worker))].sort((a, b) => a - b);
      supervisor.takeState = gather(first, (parts) => {
        const state = joinStates(parts);
        goIdle();
        reply(state, moved(state));
      });
      for (const worker of first) ctx.send(workers[worker]!, { type: "Save" }, { lane: "control" });
    },
    Saved: ({ worker, state }) => supervisor.takeState(worker, state),
    Fetch(message) {
      const reply = replies.owe();
      supervisor.state = "saving";
      supervisor.pause = "a save";
      supervisor.takeFetched = (values) => {
        goIdle();
        reply(values, { transfer: [values.buffer] });
      };
      const [first] = init.workers[0]!.copies[message.stage]!;
      ctx.send(workers[first!.worker]!, message, { lane: "control" });
    },
    Fetched: ({ values }) => supervisor.takeFetched(values),
    Write({ orders, step }) {
      const reply = replies.owe();
      supervisor.state = "saving";
      supervisor.pause = "a checkpoint";
      supervisor.takeWritten = gather(orders.map(({ worker }) => worker), (outcomes) => {
        goIdle();
        reply(outcomes);
      });
      for (const { worker, order } of orders) {
        ctx.send(workers[worker]!, { type: "Write", order, step }, { lane: "control" });
      }
    },
    Written: ({ worker, outcome }) => supervisor.takeWritten(worker, outcome),
  };
}
