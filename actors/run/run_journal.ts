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

/** Facts about a run in the header of its journal. */
interface JournaledRun {
  /** Seed of the runtime's own draws. */
  readonly seed: number;
  /** Name of the runtime. */
  readonly runtime: string;
  /** Devices. */
  readonly devices: readonly [DeviceChoice, ...DeviceChoice[]];
}

/** The journal of a run that is written. */
export interface OpenJournal {
  /** Aborted with the reason when the run must end because its journal cannot be written. */
  readonly ended: AbortSignal;
  /** Begins the journal of the `nth` time, from 0, that the run starts its workers. */
  begin(run: JournaledRun, nth: number): Promise<ObserverSpec | undefined>;
}

/** The training actors. */
export const TRAINING_SPECS = [SUPERVISOR, WORKER] as const;

/** Their modules. */
export const TRAINING_ACTORS: readonly string[] = TRAINING_SPECS.map(({ module }) => module);

/**
 * Checks that a journal can be written, and opens it.
 *
 * @param announce Called once if the run continues without the journal.
 * @throws {RangeError} with the reason if it cannot be written.
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
    else if (!hasFailed) announce(`${error.message}; the run continues without a journal`);
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
 * Ends a run whose journal cannot be written, if `whenFull` is `stop`.
 *
 * @param step Steps done.
 * @param checkpoint The newest checkpoint, if the run writes any.
 * @throws {Error} with the reason.
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
