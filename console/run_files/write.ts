/**
 * Writes the files of a run next to its checkpoints: `run.json` at the start and end, and
 * `metrics.jsonl` during the run.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { lstat } from "../../actors/checkpoints/lock.ts";
import { removeIfThere, replaceFile } from "../../actors/checkpoints/write.ts";
import type { Metrics } from "../../actors/options/train_options.ts";
import type { TrainEvent } from "../../actors/run/events.ts";
import { EVENT_FILE } from "../../actors/run/metrics.ts";
import type { Plan } from "../../actors/run/plan.ts";
import about from "../../deno.json" with { type: "json" };
import { ORT_VERSION } from "../../kernels/internal.ts";
import { formatCsv, type Schedule } from "../../schedules/mod.ts";
import { keptComponents, type RunComponents } from "../train/parts.ts";
import type { RunPlace, TrainRequest } from "../train/request.ts";
import {
  continueMetrics,
  createMetrics,
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

/** A run whose files are written. */
interface WrittenRun {
  readonly place: RunPlace;
  readonly request: TrainRequest;
  readonly parts: RunComponents;
  /** Receives messages about files that cannot be written during the run. */
  readonly announce: (line: string) => void;
}

/** Limit of kept starts: the first one, and the last of the others. */
const STARTS_MAX = 100;

/** Writes the files of a running run. */
export class RunWriter implements Disposable {
  readonly #run: WrittenRun;
  readonly #directory: string;
  readonly #recordPath: string;
  #record: RunRecord | undefined;
  #metrics: MetricsFile | undefined;
  #isRemoved = false;

  /**
   * Checks the folder. Nothing is written before {@linkcode RunWriter.begin}.
   *
   * @throws {RangeError} {@linkcode SyntaxError} when the folder has files of something else, or of
   * another version.
   */
  constructor(run: WrittenRun) {
    this.#run = run;
    this.#directory = run.place.directory;
    this.#recordPath = join(this.#directory, RUN_FILES.record);
    checkOwn(run);
  }

  /** Starts or resumes the run, whose folder is locked. */
  async begin(plan: Plan): Promise<void> {
    const { place: { isInPlace }, announce } = this.#run, directory = this.#directory;
    checkOwn(this.#run);
    const before = isInPlace ? readRecord(directory) : undefined;
    this.#record = recordOf(this.#run, plan, before);
    try {
      if (isInPlace) this.#metrics = resumeMetrics(this.#run); // first, since it may be invalid
      else await removeFiles(directory);
      await this.#write();
      this.#metrics ??= createMetrics(join(directory, RUN_FILES.metrics), announce);
    } catch (cause) {
      if (cause instanceof SyntaxError) throw cause;
      throw new Error(
        `Cannot begin the run in ${directory}: its disk must be writable and have room, received ${
          (cause as Error).message
        }`,
        { cause },
      );
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
    const { request: { tokenizer } } = this.#run;
    await replaceFile(Deno, this.#recordPath, JSON.stringify(this.#record, null, 2) + "\n");
    if (!tokenizer) return;
    await replaceFile(Deno, join(this.#directory, RUN_FILES.tokenizer), tokenizer.content);
  }

  #tryToWrite(): Promise<void> {
    return this.#write().catch(({ message }: Error) =>
      this.#run.announce(`Cannot write ${this.#recordPath}: ${message}`)
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

/** Checks that files to be replaced or continued are those of a run, not others of the same name. */
function checkOwn({ place: { directory, isInPlace }, request: { flags } }: WrittenRun): void {
  // Overwritten files may have another version.
  const record = readRecord(directory, flags.overwrite && !isInPlace);
  for (const name of Object.values(RUN_FILES)) {
    const path = join(directory, name), there = lstat(path);
    if (!there || (there.isFile && record)) continue;
    throw new RangeError(
      `Cannot begin a run in ${directory}: ${name} in it must be written by a run, received ${
        there.isFile ? "another file" : "no regular file"
      }; name another folder with --out`,
    );
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

function resumeMetrics(
  { place: { directory }, announce, request: { checkpoint } }: WrittenRun,
): MetricsFile | undefined {
  const path = join(directory, RUN_FILES.metrics);
  return lstat(path) && continueMetrics(path, checkpoint!.step, announce);
}

/** Makes the record of a run that starts, or resumes with the record `before`. */
export function recordOf(
  { request, parts }: Pick<WrittenRun, "request" | "parts">,
  plan: Plan,
  before: RunRecord | undefined,
): RunRecord {
  const { typed, flags, files, schedule, checkpoint } = request, at = now();
  const start: RunStart = {
    at,
    afterStep: checkpoint?.step ?? 0,
    ...checkpoint && { from: checkpoint.path },
    command: typed,
    environment: environmentOf(plan),
  };
  const [first, ...later] = [...before?.starts ?? [], start];
  const own = keptComponents(parts), file = files.tokens ?? files.text;
  const dataHash = file?.sha256 ?? own.data?.integrity ?? parts.data.value.sha256;
  return {
    format: RUN_FORMAT,
    version: RUN_VERSION,
    model: plan.model,
    started: before?.started ?? at,
    flags,
    ...Object.keys(own).length > 0 && { parts: own },
    data: { name: parts.data.name, ...dataHash !== undefined && { hash: dataHash } },
    schedule: { name: schedule.name, ...schedule.lists && { hash: hashOf(schedule.lists) } },
    plan,
    starts: [first!, ...later.slice(-(STARTS_MAX - 1))],
  };
}

function hashOf(lists: NonNullable<Schedule["lists"]>): string {
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
