/**
 * What a run measures, for other programs that draw it: `--log`.
 *
 * @module
 */

import { tensorboard, type Tracker } from "../../actors/mod.ts";
import type { TrainFlags } from "../train/train_flags.ts";

/**
 * What `--log` asks for.
 *
 * @param directory the folder of the run, if it has one.
 * @param announce told in words why no more can be written; the run goes on.
 * @throws {TypeError} when there is no folder.
 */
export function openEventLog(
  { log }: Pick<TrainFlags, "log">,
  directory: string | undefined,
  announce: (line: string) => void,
): Tracker | undefined {
  if (log === "none") return undefined;
  if (directory === undefined) {
    throw new TypeError(
      `Cannot use --log ${log}: --out must say where its files go, received none`,
    );
  }
  const tracker = tensorboard(directory);
  let isFailed = false;
  const attempt = (what: () => void) => {
    try {
      if (!isFailed) what();
    } catch (error) {
      isFailed = true;
      announce(`${(error as Error).message}; training goes on without it`);
    }
  };
  return Object.assign((...[metrics]: Parameters<Tracker>) => attempt(() => tracker(metrics)), {
    [Symbol.dispose]: () => attempt(() => tracker[Symbol.dispose]()),
  });
}
