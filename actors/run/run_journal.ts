/**
 * The journal of a training run, with every message and step of its actors, and its black box, with
 * the last ones.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { cutIntoStages, refusal } from "../../kernels/internal.ts";
import type { StageProgram } from "../../kernels/mod.ts";
import { copiesOf } from "../pipeline/layout.ts";
import { SUPERVISOR } from "../pipeline/supervisor.ts";
import { WORKER } from "../pipeline/worker.ts";
import type { ObserverSpec } from "../runtime/mod.ts";
import { beginJournal, packageVersion } from "../simulation/journal_writer.ts";
import type { RunJournal, RunOptions } from "../options/train_options.ts";
import { tryToRemove } from "../checkpoints/lock.ts";
import { BLACK_BOX, layOut, makeBox } from "./black_box.ts";
import { type EngineOptions, gradientBytes } from "./engine.ts";
import { outputBytes } from "./memory.ts";

/** Facts about a run in the header of its journal. */
type JournaledRun = Pick<EngineOptions, "seed" | "devices"> & { readonly runtime: string };

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
  await checkJournalFile(path);
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

/** Makes sure, before a run, that its journal can be written. */
export async function checkJournalFile(path: string): Promise<void> {
  try {
    const known = await Deno.stat(path).catch(() => undefined);
    if (known?.isFifo) throw new TypeError("a pipe"); // opening a pipe waits for its other end
    await Deno.writeTextFile(path, "", { append: true });
    // A run that is refused after this leaves nothing.
    if (!known) await Deno.remove(path);
  } catch (cause) {
    throw refusal(`write a journal to ${path}`, "it must be a file that can be written", cause);
  }
}

/** The black box of a run. */
export interface OpenBlackBox {
  /** Writes the file, while there is one. */
  readonly observer: ObserverSpec;
  /**
   * Starts a new file when the workers start. The file of a failure or of a killed run is kept as
   * `black-box.lost`.
   *
   * @param isMoved True if the run has moved to other workers, which a replay cannot repeat: no file is
   *   written then.
   */
  begin(isMoved: boolean): void;
  /** Removes the file, as the run has ended well. */
  remove(): void;
}

/** A run that may have a black box. */
type BoxedRun =
  & Pick<EngineOptions, "model" | "stage" | "schedule" | "reduce" | "replicas" | "halves">
  & Pick<EngineOptions, "link" | "system" | "journal">
  & Pick<RunOptions, "out" | "blackBox" | "resume" | "announce">
  & { readonly runtime: string };

/** Steps of a black box unless given. */
const BOX_STEPS = 100;

/**
 * Mean FLOPs of a forward of a stage from which a run has a black box by default: about a millisecond,
 * of which the record of its messages takes 1 %.
 */
const BOX_FLOPS = 1e8;

/**
 * Opens the black box of a run: by default only if it can be replayed, the run has a folder, and its
 * actions are not short.
 *
 * @param args Arguments of `troupe train` that repeat the run; undefined for a script.
 * @throws {RangeError} when a black box is requested that could not be replayed.
 */
export function openBlackBox(
  run: BoxedRun,
  args: readonly string[] | undefined,
): OpenBlackBox | undefined {
  const { out, blackBox, schedule, runtime, reduce, link, journal, system, replicas, resume } = run;
  if (blackBox === 0) return undefined;
  const isOwn = !(link ?? journal ?? system);
  const problem = [
    [args, "the run must be one of troupe train, which repeats it", "a script"],
    [out !== undefined, "the run must have a folder", "none"],
    [["workers", "local"].includes(runtime), "the runtime must be workers or local", runtime],
    [schedule.updates === "flush", "the schedule must have a flush", schedule.name],
    [reduce === "deterministic", "reduce must be deterministic", reduce],
    [isOwn, "there must be no emulated link, journal or given system", "one"],
  ].find(([isMet]) => !isMet);
  if (problem && blackBox === undefined) return undefined;
  if (problem) throw refusal("keep a black box", `${problem[1]}`, problem[2]);
  const flops = forwardFlops(run.model);
  if (blackBox === undefined && flops < BOX_FLOPS * schedule.stages) return undefined;
  const workers = replicas * schedule.workers, announce = run.announce ?? (() => {});
  const after = resume?.step ?? 0, steps = blackBox ?? BOX_STEPS, stepBytes = bytesOfStep(run);
  const facts = { package: packageVersion, workers, after, steps, stepBytes, train: args! };
  const path = join(out!, BLACK_BOX), layout = layOut(path, facts);
  if (blackBox !== undefined && layout.slotBytes < stepBytes) {
    announce(
      `The black box has room for ${layout.slotBytes} bytes of a step of each worker, which gets up to ${stepBytes}; a replay computes the others again`,
    );
  }
  return {
    observer: {
      module: new URL("./black_box.ts", import.meta.url).href,
      export: "openBoxRecorder",
      init: layout,
    },
    begin(isMoved) {
      try {
        if (existsSync(path)) Deno.renameSync(path, `${path}.lost`);
        if (!isMoved) makeBox(layout, facts);
      } catch (error) {
        announce(`Cannot write ${path}: ${(error as Error).message}; the run has no black box`);
        tryToRemove(path);
      }
    },
    remove: () => void tryToRemove(path),
  };
}

/** Returns the FLOPs of a forward of a micro-batch. */
const forwardFlops = ({ programs, layers }: StageProgram): number =>
  layers.reduce((sum, { program }) => sum + programs[program]!.cost.forward, 0);

/** Returns the most bytes that a worker gets from others in a step: activations and gradients. */
function bytesOfStep({ model, stage, schedule, halves, replicas }: BoxedRun): number {
  const programs = cutIntoStages(model, schedule.stages), copies = copiesOf(schedule, replicas);
  const outputs = programs.map((program) => outputBytes(program, halves));
  const bytesAt = (index: number) => {
    const sent = outputs[index]! + (outputs[index - 1] ?? 0);
    // An all-reduce brings parts and sums.
    const reduced = copies[index]!.length > 1 ? 2 * gradientBytes(programs[index]!, stage) : 0;
    return schedule.microBatches * sent + reduced;
  };
  return Math.max(
    ...schedule.placement.map((held) => held.reduce((sum, { stage }) => sum + bytesAt(stage), 0)),
  );
}
