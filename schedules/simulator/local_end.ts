/** The end of a step without a flush: each stage steps its weights by itself, and waits for nobody. */

import type { Action } from "../actions/action.ts";
import { bucketMs, bucketsOf } from "./stage_group.ts";
import type { EndPorts, StepEnd } from "./step_end.ts";
import type { Closing, StepModel } from "./step_model.ts";

/** Steps the weights of a stage after each of its backwards, or after the last of the step. */
export function openLocalEnd(model: StepModel, closing: Closing, ports: EndPorts): StepEnd {
  const { schedule: { updates, microBatches, stages }, controlMs = 0 } = model;
  const every = updates === "every-backward" ? 1 : microBatches;
  const done = new Int32Array(stages);
  let endsMissing = stages;
  const end = () => --endsMissing === 0 && ports.ended();
  return {
    begin() {},
    afterBackward({ stage }: Action, worker) {
      const count = done[stage] = done[stage]! + 1;
      if (count % every > 0) return;
      const one = model.stages[stage]!;
      const ms = bucketsOf(one, closing).reduce(
        (sum, size) => sum + bucketMs(one, closing, size),
        0,
      );
      ports.work(worker, ms, { what: "optimizer", stage, part: count / every - 1 }, () => {
        if (count === microBatches) ports.at(ports.now() + controlMs, end);
      });
    },
  };
}
