/**
 * The journal of a training run: every message and step of its actors.
 *
 * @module
 */

import type { DeviceChoice } from "../../kernels/mod.ts";
import { SUPERVISOR } from "../pipeline/supervisor.ts";
import { WORKER } from "../pipeline/worker.ts";
import type { ObserverSpec } from "../runtime/mod.ts";
import { beginJournal } from "../simulation/journal_writer.ts";
import type { RunJournal } from "../options/train_options.ts";

/** What a journal's header says of its run. */
export interface JournaledRun {
  /** Seed of the runtime's own draws. */
  readonly seed: number;
  /** Where actors run. */
  readonly runtime: string;
  /** What computes. */
  readonly devices: readonly [DeviceChoice, ...DeviceChoice[]];
}

/** The journal of a run that is written. */
export interface OpenJournal {
  /** Aborted, for the reason why, when the run is to end as its journal cannot go on. */
  readonly ended: AbortSignal;
  /** Begins the journal of the `nth` time, from 0, that the run starts its workers. */
  begin(run: JournaledRun, nth: number): Promise<ObserverSpec | undefined>;
}

/** How the actors of training are made. */
export const TRAINING_SPECS = [SUPERVISOR, WORKER] as const;

/** Their modules. */
export const TRAINING_ACTORS: readonly string[] = TRAINING_SPECS.map(({ module }) => module);

/**
 * Makes sure that a journal can be written.
 *
 * @param announce told once when it cannot go on and the run does.
 * @throws {RangeError} saying what is in the way.
 */
export async function openRunJournal(
  { path, payloads = false, configuration, program = [], whenFull = "go-on" }: RunJournal,
  announce: (line: string) => void,
): Promise<OpenJournal> {
  await checkWritable(path);
  const full = new AbortController();
  let hasFailed = false;
  const onFailure = (error: Error) => {
    if (whenFull === "stop") full.abort(error);
    else if (!hasFailed) announce(`${error.message}; the run goes on without a journal`);
    hasFailed = true;
  };
  return {
    ended: full.signal,
    async begin({ seed, runtime, devices: [device] }, nth) {
      try {
        return await beginJournal({
          path: nth === 0 ? path : `${path}.${nth + 1}`,
          seed,
          strategy: runtime,
          configuration,
          actors: [...TRAINING_ACTORS, ...program],
          device: device.name,
          payloads,
          onFailure,
        });
      } catch (error) {
        onFailure(error as Error);
        return undefined;
      }
    },
  };
}

/**
 * Ends a run whose journal cannot go on, if it was to end then.
 *
 * @param step steps that are done.
 * @param checkpoint the newest, if one was asked for.
 * @throws {Error} the reason.
 */
export function assertWritten(
  journal: OpenJournal | undefined,
  step: number,
  checkpoint: string | null,
): void {
  if (!journal?.ended.aborted) return;
  const { reason: cause } = journal.ended, saved = checkpoint ?? "none, as none was asked for";
  throw new Error(
    `${(cause as Error).message}; the run ended after step ${step}, with the checkpoint ${saved}`,
    { cause },
  );
}

async function checkWritable(path: string): Promise<void> {
  try {
    const known = await Deno.stat(path).catch(() => undefined);
    if (known?.isFifo) throw new TypeError("a pipe"); // to open one waits for its other end
    await Deno.writeTextFile(path, "", { append: true });
    // A run that is refused after this leaves nothing.
    if (!known) await Deno.remove(path);
  } catch (cause) {
    throw new RangeError(
      `Cannot write a journal to ${path}: it must be a file that can be written, received ${
        (cause as Error).message
      }`,
      { cause },
    );
  }
}
