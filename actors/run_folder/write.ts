/**
 * Writes the files of a run next to its checkpoints: `run.json` at the start and end, and
 * `metrics.jsonl` during the run.
 *
 * @module
 */

import type { Plan, TrainEvent } from "../options/train_events.ts";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { type Claim, goesOnIn, lstat } from "../checkpoints/lock.ts";
import { removeIfThere, replaceFile } from "../checkpoints/write.ts";
import type { Metrics } from "../options/train_options.ts";
import about from "../../deno.json" with { type: "json" };
import { assertInput, ORT_VERSION, refusal } from "../../kernels/internal.ts";
import { formatCsv, type Schedule } from "../../schedules/mod.ts";
import {
  continueMetrics,
  createMetrics,
  EVENT_FILE,
  type MetricsFile,
  RUN_FILES,
  RUN_FORMAT,
  RUN_VERSION,
  type RunEnd,
  type RunEnvironment,
  type RunRecord,
  type RunStart,
} from "./metrics_file.ts";
import { readRecord } from "./read.ts";

/** Facts for `run.json` that only the caller of a run knows. */
export interface RunFacts
  extends Pick<RunRecord, "flags" | "parts" | "data">, Pick<RunStart, "command" | "script"> {
  /** Arguments of `troupe train` that repeat the run, even without its configuration file. */
  readonly repeated?: readonly string[];
  /** Content of the tokenizer's file. */
  readonly tokenizer?: Uint8Array;
}

/** A run whose files are written. */
interface WrittenRun extends Pick<Claim, "resume" | "overwrite"> {
  readonly directory: string;
  readonly facts: RunFacts;
  readonly schedule: Pick<Schedule, "name" | "lists">;
  /** Receives messages about files that cannot be written during the run. */
  readonly announce: (line: string) => void;
}

/** Limit of kept starts: the first one, and the last of the others. */
const STARTS_MAX = 100;

/** Writes the files of a running run. */
export class RunWriter implements Disposable {
  readonly #recordPath: string;
  #record: RunRecord | undefined;
  #metrics: MetricsFile | undefined;
  #isRemoved = false;

  /** Makes a writer; nothing is written before {@linkcode RunWriter.begin}. */
  constructor(private readonly run: WrittenRun) {
    this.#recordPath = join(run.directory, RUN_FILES.record);
  }

  /** Starts or resumes the run, whose folder is locked and claimed. */
  async begin(plan: Plan): Promise<void> {
    const { directory, resume, announce } = this.run;
    const isInPlace = goesOnIn(directory, { resume }), path = join(directory, RUN_FILES.metrics);
    checkRunFiles(this.run);
    const before = isInPlace ? readRecord(directory) : undefined;
    this.#record = recordOf(this.run, plan, before);
    try {
      // First, since it may be invalid.
      if (!isInPlace) await removeFiles(directory);
      else if (lstat(path)) this.#metrics = continueMetrics(path, resume!.step, announce);
      await this.#write();
      this.#metrics ??= createMetrics(path, announce);
    } catch (cause) {
      if (cause instanceof SyntaxError) throw cause;
      const must = "its disk must be writable and have room";
      throw refusal(`begin the run in ${directory}`, must, cause, Error);
    }
  }

  /** Adds metrics. */
  metrics(metrics: Metrics): void {
    this.#isRemoved = this.#metrics!.add(metrics);
  }

  /** Handles an event of the run. */
  async see(event: TrainEvent): Promise<void> {
    if (this.#isRemoved) await this.#tryToWrite();
    this.#isRemoved = false;
    if (event.type === "resize") this.#metrics!.add(event);
    if (event.type === "checkpoint") this.#metrics!.sync();
    if (event.type !== "end") return;
    this.#metrics!.sync();
    const { steps: step, seconds, weightsHash, best } = event;
    const end = { at: now(), reason: reasonOf(event), step, seconds, weightsHash };
    this.#record = { ...this.#record!, end: { ...end, ...best && { best } } };
    await this.#tryToWrite();
  }

  [Symbol.dispose](): void {
    this.#metrics?.[Symbol.dispose]();
  }

  async #write(): Promise<void> {
    const { directory, facts: { tokenizer } } = this.run;
    await replaceFile(Deno, this.#recordPath, JSON.stringify(this.#record, null, 2) + "\n");
    if (!tokenizer) return;
    await replaceFile(Deno, join(directory, RUN_FILES.tokenizer), tokenizer);
  }

  #tryToWrite(): Promise<void> {
    return this.#write().catch(({ message }: Error) =>
      this.run.announce(`Cannot write ${this.#recordPath}: ${message}`)
    );
  }
}

/** Returns the reason of the end of a run. */
export function reasonOf(
  { isInterrupted, isStoppedEarly }: TrainEvent & { readonly type: "end" },
): RunEnd["reason"] {
  if (isInterrupted) return "interrupted";
  return isStoppedEarly ? "stopped early" : "finished";
}

const now = () => new Date().toISOString();

/**
 * Checks that files to be replaced or continued are those of a run, not others of the same name.
 *
 * @throws {RangeError} {@linkcode SyntaxError} when the folder has files of something else, or of
 * another version.
 */
export function checkRunFiles(
  { directory, resume, overwrite }: Pick<WrittenRun, "directory" | "resume" | "overwrite">,
): void {
  // Overwritten files may have another version.
  const record = readRecord(directory, overwrite && !goesOnIn(directory, { resume }));
  for (const name of Object.values(RUN_FILES)) {
    const path = join(directory, name), there = lstat(path);
    const received = there?.isFile ? "another file" : "no regular file";
    const isOwn = !there || there.isFile && record !== undefined;
    const must = `${name} in it must be written by a run`,
      remedy = "name another folder with --out";
    assertInput(isOwn, `begin a run in ${directory}`, must, `${received}; ${remedy}`);
  }
}

/** Removes the files of an earlier run, `run.json` last. */
async function removeFiles(directory: string): Promise<void> {
  const { record, ...others } = RUN_FILES;
  for (const name of [...Object.values(others), record]) {
    await removeIfThere(Deno, join(directory, name));
  }
  for await (const { name } of Deno.readDir(directory)) {
    if (EVENT_FILE.test(name)) await Deno.remove(join(directory, name));
  }
}

/** Makes the record of a run that starts, or resumes with the record `before`. */
export function recordOf(
  { facts, schedule, resume }: Pick<WrittenRun, "facts" | "schedule" | "resume">,
  plan: Plan,
  before: RunRecord | undefined,
): RunRecord {
  const { flags, command, script, parts = {}, data } = facts, at = now();
  const start: RunStart = {
    at,
    afterStep: resume?.step ?? 0,
    ...resume?.path !== undefined && { from: resume.path },
    command,
    ...script !== undefined && { script },
    environment: environmentOf(plan),
  };
  const [first, ...later] = [...before?.starts ?? [], start];
  return {
    format: RUN_FORMAT,
    version: RUN_VERSION,
    model: plan.model,
    started: before?.started ?? at,
    flags,
    ...Object.keys(parts).length > 0 && { parts },
    data,
    schedule: { name: schedule.name, ...schedule.lists && { hash: hashOf(schedule.lists) } },
    plan,
    starts: [first!, ...later.slice(-(STARTS_MAX - 1))],
  };
}

/** Returns the hash of action lists. */
export function hashOf(lists: NonNullable<Schedule["lists"]>): string {
  const hash = createHash("sha256");
  for (const list of lists) hash.update(formatCsv([list]));
  return hash.digest("hex");
}

function environmentOf({ device, adapter, matrix, share }: Plan): RunEnvironment {
  return {
    troupe: about.version,
    deno: Deno.version.deno,
    ...device !== "reference" && { onnxruntime: ORT_VERSION },
    os: Deno.build.os,
    arch: Deno.build.arch,
    cores: share.cores,
    threads: share.threads,
    device,
    ...adapter !== undefined && { adapter },
    ...matrix !== undefined && { matrix },
  };
}
