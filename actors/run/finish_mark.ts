/**
 * The mark of a run that was launched: taken away when it begins, set when it has come to its end.
 *
 * @module
 */

import {
  type Finished,
  hashConfig,
  removeFinished,
  writeFinished,
} from "../checkpoints/marks/finished.ts";
import { launchName } from "../runtime/transports/mpi/launcher/launch_watch.ts";
import type { TrainEvent } from "./train_event.ts";
import type { TrainOptions } from "./options/train_options.ts";

/** The mark of one run. */
export interface FinishMark {
  /** The run begins. */
  begin(): Promise<void>;
  /** Notes an event of it. */
  see(event: TrainEvent): void;
  /** Sets the mark if the run has come to its end. */
  end(): Promise<void>;
}

/** The mark of a run; undefined where nothing can be left in a folder of its own. */
export function finishMark(
  { checkpoint }: Pick<TrainOptions, "checkpoint">,
): FinishMark | undefined {
  if (!checkpoint) return undefined;
  const { directory, config = {} } = checkpoint;
  let loss: number | undefined, finished: Finished | undefined;
  return {
    begin: () => removeFinished(directory),
    see(event) {
      if (event.type === "step") loss = event.loss;
      if (event.type !== "end" || event.isInterrupted) return;
      const { steps: step, weightsHash } = event;
      finished = { step, loss, weightsHash, configHash: hashConfig(config), launch: launchName() };
    },
    async end() {
      if (finished) await writeFinished(directory, finished);
    },
  };
}
