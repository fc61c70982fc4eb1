/**
 * The journal of a training run: every message and step of its actors.
 *
 * @module
 */

import { ASYNC_SUPERVISOR } from "./async_supervisor.ts";
import { ASYNC_WORKER } from "./async_worker.ts";
import type { ObserverSpec } from "./runtime/mod.ts";
import { beginJournal } from "./simulation/mod.ts";
import { SUPERVISOR } from "./supervisor.ts";
import type { PreparedRun } from "./train_options.ts";
import { WORKER } from "./worker.ts";

/** What is asked of a journal. */
export interface RunJournal {
  /** The file. A run that has to start its workers again goes on in `FILE.2`, and so on. */
  readonly path: string;
  /** Whether messages are kept too, so that one worker can be replayed alone. Default false. */
  readonly payloads?: boolean | undefined;
  /** What makes the run again, as JSON can say it. */
  readonly configuration?: unknown;
}

/**
 * Makes sure that a journal can be written, and makes its file.
 *
 * @throws {RangeError} saying what is in the way.
 */
export async function checkJournal({ path }: RunJournal): Promise<void> {
  try {
    await Deno.writeTextFile(path, "", { append: true });
  } catch (cause) {
    throw new RangeError(
      `Cannot write a journal to ${path}: it must be a file that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}

/** How the actors of training are made. */
export const TRAINING_SPECS = [SUPERVISOR, WORKER, ASYNC_SUPERVISOR, ASYNC_WORKER] as const;

/** Their modules. */
export const TRAINING_ACTORS: readonly string[] = TRAINING_SPECS.map(({ module }) => module);

/** Begins the journal of the `nth` time, from 0, that a run starts its workers. */
export async function beginRunJournal(
  { journal, seed, runtime, device }: PreparedRun,
  nth: number,
): Promise<ObserverSpec | undefined> {
  if (!journal) return undefined;
  const { path, payloads = false, configuration } = journal;
  return await beginJournal({
    path: nth === 0 ? path : `${path}.${nth + 1}`,
    seed,
    strategy: runtime,
    configuration,
    actors: TRAINING_ACTORS,
    device: device.name,
    payloads,
  });
}
