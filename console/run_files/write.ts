/**
 * Writes what a run leaves beside its checkpoints: `run.json` when it begins and ends,
 * `metrics.jsonl` on its way.
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
import { ORT_VERSION } from "../../kernels/mod.ts";
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

/** The files of a run under way. */
interface RunWriter extends Disposable {
  /** The run begins, or goes on: its folder is locked, and nothing has run yet. */
  begin(plan: Plan): Promise<void>;
  /** Notes what was measured. */
  metrics(metrics: Metrics): void;
  /** Notes an event of the run. */
  see(event: TrainEvent): Promise<void>;
}

/** What is written about. */
interface WrittenRun {
  readonly place: RunPlace;
  readonly request: TrainRequest;
  readonly parts: RunComponents;
  /** Told in words what cannot be written while the run goes on. */
  readonly announce: (line: string) => void;
}

/** Starts that are kept: the first, and the last of the others. */
const STARTS_MAX = 100;

/**
 * Makes ready to write the files of a run. Nothing is written before it begins.
 *
 * @throws {RangeError} {@linkcode SyntaxError} when the folder has files that are not a run's, or of
 * another version.
 */
export function openRunWriter(run: WrittenRun): RunWriter {
  const { place: { directory, isInPlace }, request: { tokenizer }, announce } = run;
  const recordPath = join(directory, RUN_FILES.record);
  checkOwn(run);
  let record: RunRecord, metrics: MetricsFile | undefined, isRemoved = false;
  const write = async () => {
    await replaceFile(Deno, recordPath, encode(record));
    if (!tokenizer) return;
    await replaceFile(Deno, join(directory, RUN_FILES.tokenizer), tokenizer.content);
  };
  const tryToWrite = () =>
    write().catch(({ message }: Error) => announce(`Cannot write ${recordPath}: ${message}`));
  return {
    async begin(plan) {
      checkOwn(run);
      const before = isInPlace ? readRecord(directory) : undefined;
      record = recordOf(run, plan, before);
      try {
        if (isInPlace) metrics = goOnWithMetrics(run); // before anything is written: it may be none
        else await removeFiles(directory);
        await write();
        metrics ??= createMetrics(join(directory, RUN_FILES.metrics), announce);
      } catch (cause) {
        if (cause instanceof SyntaxError) throw cause;
        throw new Error(
          `Cannot begin the run in ${directory}: its disk must have room and let itself be written to, received ${
            (cause as Error).message
          }`,
          { cause },
        );
      }
    },
    metrics: (one) => void (isRemoved = metrics!.add(one)),
    async see(event) {
      if (isRemoved) await tryToWrite();
      isRemoved = false;
      if (event.type === "checkpoint") metrics!.sync();
      if (event.type !== "end") return;
      metrics!.sync();
      const { steps: step, seconds, weightsHash, best } = event;
      const reason = reasonOf(event), end = { at: now(), reason, step, seconds, weightsHash };
      record = { ...record, end: { ...end, ...best && { best } } };
      await tryToWrite();
    },
    [Symbol.dispose]: () => metrics?.[Symbol.dispose](),
  };
}

/** How a run has come to its end. */
export function reasonOf(
  { isInterrupted, isStoppedEarly }: TrainEvent & { readonly type: "end" },
): RunEnd["reason"] {
  if (isInterrupted) return "interrupted";
  return isStoppedEarly ? "stopped early" : "finished";
}

const now = () => new Date().toISOString();

const encode = (record: RunRecord) => JSON.stringify(record, null, 2) + "\n";

/**
 * Makes sure that what is about to be replaced or gone on with is a run's: a folder may hold other
 * files, with the same names too.
 */
function checkOwn({ place: { directory, isInPlace }, request: { flags } }: WrittenRun): void {
  // What is overwritten may be of another version.
  const record = readRecord(directory, flags.overwrite && !isInPlace);
  for (const name of Object.values(RUN_FILES)) {
    const path = join(directory, name), there = lstat(path);
    if (!there || (there.isFile && record)) continue;
    throw new RangeError(
      `Cannot begin a run in ${directory}: ${name} there must be a run's, received ${
        there.isFile ? "one of something else" : "what is no file"
      }; name another folder with --out`,
    );
  }
}

/** Removes what another run, or an earlier try of this one, has left: `run.json` last. */
async function removeFiles(directory: string): Promise<void> {
  const { record, ...others } = RUN_FILES;
  for (const name of [...Object.values(others), record]) {
    await removeIfThere(Deno, join(directory, name));
  }
  for await (const { name } of Deno.readDir(directory)) {
    if (EVENT_FILE.test(name)) await Deno.remove(join(directory, name));
  }
}

function goOnWithMetrics(
  { place: { directory }, announce, request: { checkpoint } }: WrittenRun,
): MetricsFile | undefined {
  const path = join(directory, RUN_FILES.metrics);
  return lstat(path) && continueMetrics(path, checkpoint!.step, announce);
}

/** What is told of a run that begins, or goes on from what was told before. */
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

function environmentOf({ device, adapter, share }: Plan): RunEnvironment {
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
  };
}
