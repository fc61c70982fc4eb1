/**
 * The end of a step with a flush, as the training actors end it: votes, all-reduce, commit.
 *
 * [Note: the simulated commit] The messages, and the order in which a worker starts chunks and steps
 * buckets, are those of the supervisor and the workers: a copy votes after its last backward;
 * `Reduce` goes out when all have voted, or all copies of an eager stage; two chunks of a copy are in
 * transit; one bucket is stepped at a time, and messages that arrive between two buckets go first; if
 * gradients are clipped, buckets wait for the norm. Data-parallel replicas are equal: one is
 * simulated, the all-reduce has the ranks of all, and the supervisor handles the messages of all.
 * All-reduces of a worker take turns, but not with its messages between stages, few of which remain by
 * then.
 *
 * @module
 */

import type { Action } from "../action.ts";
import type { Schedule } from "../schedule.ts";
import type { Link, StageModel, StepEndModel, StepEndSpan, StepModel } from "./model.ts";

/**
 * Half of an all-reduce: its latency and transfer time. Reduce-scatter and all-gather cost the same.
 * With p ranks, c the largest power of two up to p, and n bytes, each half costs: `direct` α + (p−1)/p·nβ, `ring`
 * (p−1)α + (p−1)/p·nβ, `rabenseifner` log₂c·α + (c−1)/c·nβ, and α + nβ more where p is not c.
 */
export function reduceHalf(
  algorithm: "direct" | "ring" | "rabenseifner",
  ranks: number,
  bytes: number,
  { latencyMs, bytesPerMs = Infinity }: Link,
): { readonly latencyMs: number; readonly transferMs: number } {
  if (ranks === 1) return { latencyMs: 0, transferMs: 0 };
  const core = 2 ** Math.floor(Math.log2(ranks)), fold = ranks === core ? 0 : 1;
  const [rounds, share] = {
    direct: [1, (ranks - 1) / ranks] as const,
    ring: [ranks - 1, (ranks - 1) / ranks] as const,
    rabenseifner: [Math.log2(core) + fold, (core - 1) / core + fold] as const,
  }[algorithm];
  return { latencyMs: rounds * latencyMs, transferMs: share * bytes / bytesPerMs };
}

/** A copy of a stage on a worker. */
interface Copy {
  readonly worker: number;
  readonly group: Group;
  /** Micro-batches whose backwards have not run. */
  missing: number;
  /** Chunks started, and chunks with sums. */
  started: number;
  complete: number;
}

/** The copies of a stage in one data-parallel replica. */
interface Group {
  readonly stage: number;
  readonly copies: Copy[];
  /** The bytes of each bucket. */
  readonly buckets: readonly number[];
  readonly chunks: readonly Chunk[];
  votesMissing: number;
  isReducing: boolean;
}

/** Buckets `first` to `end` − 1 of a stage, and the number of copies that have arrived at a phase. */
interface Chunk {
  readonly index: number;
  readonly first: number;
  readonly end: number;
  readonly bytes: number;
  startMs: number;
  arrived: number;
}

/** The time to step a bucket of a stage, with its states fetched and put back. */
function bucketMs(
  { optimizerMs = 0, gradientBytes = 0 }: StageModel,
  { offload }: StepEndModel,
  bytes: number,
): number {
  const stepMs = gradientBytes === 0 ? optimizerMs : optimizerMs * bytes / gradientBytes;
  if (offload === undefined) return stepMs;
  const { link: { latencyMs, bytesPerMs = Infinity }, loadRatio, storeRatio } = offload;
  return stepMs + 2 * latencyMs + (loadRatio + storeRatio) * bytes / bytesPerMs;
}

/** The bytes of each bucket of a stage; one bucket without bytes if it has no gradients. */
function bucketsOf({ gradientBytes = 0 }: StageModel, { bucketBytes }: StepEndModel): number[] {
  const most = bucketBytes ?? gradientBytes;
  const count = Math.max(1, Math.ceil(gradientBytes / most) || 1);
  return Array.from({ length: count }, (_, b) => Math.min(most, gradientBytes - b * most));
}

/** A stage without copies. */
function openGroup(stage: number, model: StageModel, closing: StepEndModel): Group {
  const buckets = bucketsOf(model, closing), { coarsening = 1 } = closing;
  const chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, index) => {
    const first = index * coarsening, end = Math.min(first + coarsening, buckets.length);
    const bytes = buckets.slice(first, end).reduce((sum, size) => sum + size, 0);
    return { index, first, end, bytes, startMs: 0, arrived: 0 };
  });
  return { stage, copies: [], buckets, chunks, votesMissing: 0, isReducing: false };
}

/** Places the copies: that of a stage in a pipeline at index `pipeline * stages + stage`. */
function placeCopies(schedule: Schedule, groups: readonly Group[]): Copy[] {
  const microBatches = Map.groupBy(schedule.pipelineOf, (pipeline) => pipeline);
  const copies: Copy[] = [];
  schedule.placement.forEach((held, worker) => {
    for (const { stage, pipeline } of held) {
      const group = groups[stage]!, missing = microBatches.get(pipeline)?.length ?? 0;
      const copy = { worker, group, missing, started: 0, complete: 0 };
      group.copies.push(copy);
      group.votesMissing++;
      copies[pipeline * schedule.stages + stage] = copy;
    }
  });
  return copies;
}

/** The simulation, as the end of a step uses it. */
export interface EndPorts {
  /** The current time. */
  now(): number;
  /** Runs a function at a time. */
  at(timeMs: number, then: () => void): void;
  /** Keeps a worker busy when it is free, before its next action. */
  work(worker: number, ms: number, span: SpanName, then: () => void): void;
  /** Notes a chunk that was in transit. */
  note(worker: number, span: StepEndSpan): void;
  /** Notes that the step has ended for all workers. */
  ended(): void;
}

/** The end of a step. */
export interface StepEnd {
  /** Called when the step begins. */
  begin(): void;
  /** Called after a full backward, or one for the weights, of a micro-batch. */
  afterBackward(part: Action, worker: number): void;
}

/** The name of a span. */
export type SpanName = Pick<StepEndSpan, "what" | "stage" | "part">;

const NO_TIME: Link = { latencyMs: 0 };

/** The open parts of the end of a step on one worker. */
function openWorker(copies: readonly Copy[]) {
  return {
    copies,
    /** Copies that have not voted. */
    votesMissing: copies.length,
    /** Buckets with sums, in the order of their steps, and those of them that are begun. */
    due: [] as { copy: Copy; bucket: number }[],
    begun: 0,
    sumsMissing: copies.length,
    bucketsMissing: copies.reduce((sum, { group }) => sum + group.buckets.length, 0),
    isCommitted: false,
    isStepping: false,
  };
}

/** The end of a step with a flush. */
export class CommittedEnd implements StepEnd {
  readonly #replicas: number;
  readonly #groups: readonly Group[];
  readonly #workers: readonly ReturnType<typeof openWorker>[];
  /** The copy of a stage in a pipeline, at index `pipeline * stages + stage`. */
  readonly #copies: readonly Copy[];
  /** For each worker, the time at which its link is free for the next all-reduce. */
  readonly #linkFree: Float64Array;
  /** True if ranks continue without a vote. */
  readonly #hasNoVote: boolean;
  #votesMissing: number;
  #sumsMissing: number;
  #endsMissing: number;
  #supervisorFree = 0;

  constructor(
    private readonly model: StepModel,
    private readonly closing: StepEndModel,
    private readonly ports: EndPorts,
  ) {
    const { schedule, replicas = 1, stages } = model;
    this.#replicas = replicas;
    this.#hasNoVote = closing.protocol === "ranks";
    this.#groups = stages.map((stage, index) => openGroup(index, stage, closing));
    this.#copies = placeCopies(schedule, this.#groups);
    this.#workers = schedule.placement.map((held) =>
      openWorker(held.map((one) => this.#copies[one.pipeline * schedule.stages + one.stage]!))
    );
    this.#linkFree = new Float64Array(schedule.workers);
    this.#votesMissing = this.#copies.length;
    this.#sumsMissing = schedule.workers;
    this.#endsMissing = schedule.workers;
  }

  /** Copies without a micro-batch vote immediately. */
  begin(): void {
    if (this.#hasNoVote && !this.closing.isClipped) {
      for (const worker of this.#workers) worker.isCommitted = true;
    }
    for (const copy of this.#copies) if (copy.missing === 0) this.#check(copy);
  }

  afterBackward({ stage, microBatch }: Action): void {
    const { pipelineOf, stages } = this.model.schedule;
    const copy = this.#copies[pipelineOf[microBatch]! * stages + stage]!;
    if (--copy.missing === 0) this.#check(copy);
  }

  #check(copy: Copy): void {
    const { worker, group: { stage } } = copy, ms = this.model.stages[stage]!.checkMs ?? 0;
    this.ports.work(worker, ms, { what: "check", stage, part: 0 }, () => {
      this.#workers[worker]!.votesMissing--;
      this.#report(() => this.#vote(copy));
    });
  }

  #vote(copy: Copy): void {
    const { group } = copy, { eagerStages = [], isClipped = false } = this.closing;
    const isEager = eagerStages.includes(group.stage);
    group.votesMissing--;
    if (--this.#votesMissing === 0) {
      this.#reduce(this.#groups);
      if (!isClipped) this.#commit();
    } else if (this.#hasNoVote) {
      if (isEager) this.#start(copy);
      const { copies, votesMissing } = this.#workers[copy.worker]!;
      if (votesMissing === 0) { for (const one of copies) this.#start(one); }
    } else if (isEager && group.votesMissing === 0) this.#reduce([group]);
  }

  /** Sends a message of a worker of each replica to the supervisor, which handles them in turn. */
  #report(then: () => void): void {
    if (this.#hasNoVote) return then();
    const { handleMs = 0 } = this.closing, { controlMs = 0 } = this.model;
    const heard = Math.max(this.#supervisorFree, this.ports.now() + controlMs) +
      handleMs * this.#replicas;
    this.#supervisorFree = heard;
    this.ports.at(heard, then);
  }

  /** Sends a message of the supervisor to all workers. */
  #broadcast(then: () => void): void {
    if (this.#hasNoVote) return then();
    this.ports.at(this.ports.now() + (this.model.controlMs ?? 0), then);
  }

  #reduce(groups: readonly Group[]): void {
    const waiting = groups.filter(({ isReducing }) => !isReducing);
    for (const group of waiting) group.isReducing = true;
    this.#broadcast(() => {
      for (const { copies } of waiting) for (const copy of copies) this.#start(copy);
    });
  }

  /** Starts the first chunks of a copy. */
  #start(copy: Copy): void {
    if (copy.started > 0) return;
    const { chunksUnderWay = 2 } = this.closing;
    while (this.#startChunk(copy, chunksUnderWay));
  }

  #startChunk(copy: Copy, most: number): boolean {
    const { worker, group } = copy, { stage, chunks } = group;
    if (copy.started >= Math.min(most, chunks.length)) return false;
    const chunk = chunks[copy.started++]!;
    const ms = this.#ranks(group) === 1 ? 0 : this.closing.launchMs ?? 0;
    this.ports.work(worker, ms, { what: "launch", stage, part: chunk.index }, () => {
      if (!this.#isLast(group, chunk)) return;
      chunk.startMs = this.ports.now();
      this.#transfer(group, chunk, () => this.#add(group, chunk));
    });
    return true;
  }

  /** Counts a copy that has arrived at a phase of a chunk; returns true for the last copy. */
  #isLast(group: Group, chunk: Chunk): boolean {
    if (++chunk.arrived < group.copies.length) return false;
    chunk.arrived = 0;
    return true;
  }

  #ranks({ copies }: Group): number {
    return copies.length * this.#replicas;
  }

  /** One half of an all-reduce: when the links of all copies are free, then a latency later. */
  #transfer(group: Group, chunk: Chunk, then: () => void): void {
    const { algorithm = "direct", link = this.model.network?.link ?? NO_TIME } = this.closing;
    const { latencyMs, transferMs } = reduceHalf(algorithm, this.#ranks(group), chunk.bytes, link);
    let start = this.ports.now();
    for (const { worker } of group.copies) start = Math.max(start, this.#linkFree[worker]!);
    for (const { worker } of group.copies) this.#linkFree[worker] = start + transferMs;
    this.ports.at(start + transferMs + latencyMs, then);
  }

  /** Each rank adds its slice of the chunk, and the sums travel to all ranks. */
  #add(group: Group, chunk: Chunk): void {
    const ranks = this.#ranks(group), { addBytesPerMs = Infinity } = this.closing;
    const ms = (ranks - 1) / ranks * chunk.bytes / addBytesPerMs;
    for (const { worker } of group.copies) {
      this.ports.work(worker, ms, { what: "add", stage: group.stage, part: chunk.index }, () => {
        if (!this.#isLast(group, chunk)) return;
        this.#transfer(group, chunk, () => {
          for (const copy of group.copies) this.#takeSums(copy, chunk);
        });
      });
    }
  }

  #takeSums(copy: Copy, { index, first, end, startMs }: Chunk): void {
    const { group } = copy, worker = this.#workers[copy.worker]!, endMs = this.ports.now();
    if (this.#ranks(group) > 1) {
      const span = { what: "reduce", stage: group.stage, part: index, startMs, endMs } as const;
      this.ports.note(copy.worker, span);
    }
    copy.complete++;
    this.#startChunk(copy, Infinity);
    for (let bucket = first; bucket < end; bucket++) worker.due.push({ copy, bucket });
    this.#stepNext(copy.worker);
    if (copy.complete < group.chunks.length || --worker.sumsMissing > 0) return;
    if (this.closing.isClipped) this.#report(() => --this.#sumsMissing === 0 && this.#commit());
  }

  #commit(): void {
    this.#broadcast(() => {
      for (const [index, worker] of this.#workers.entries()) {
        if (worker.isCommitted) continue;
        worker.isCommitted = true;
        if (worker.bucketsMissing === 0) this.#endFor();
        this.#stepNext(index);
      }
    });
  }

  /** Steps the next bucket of a worker, and the one after it behind messages that arrive meanwhile. */
  #stepNext(index: number): void {
    const worker = this.#workers[index]!;
    if (worker.isStepping || !worker.isCommitted || worker.begun === worker.due.length) return;
    const { copy: { group }, bucket } = worker.due[worker.begun++]!;
    const { stage, buckets } = group;
    const ms = bucketMs(this.model.stages[stage]!, this.closing, buckets[bucket]!);
    worker.isStepping = true;
    this.ports.work(index, ms, { what: "optimizer", stage, part: bucket }, () => {
      worker.isStepping = false;
      if (--worker.bucketsMissing === 0) this.#endFor();
      else this.#stepNext(index);
    });
  }

  #endFor(): void {
    this.#report(() => --this.#endsMissing === 0 && this.ports.ended());
  }
}

/** Steps the weights of a stage after each of its backwards, or after the last of the step. */
export function openLocalEnd(model: StepModel, closing: StepEndModel, ports: EndPorts): StepEnd {
  const { schedule: { updates, microBatches, stages }, controlMs = 0 } = model;
  const every = updates === "every-backward" ? 1 : microBatches;
  const done = new Int32Array(stages);
  let endsMissing = stages;
  const end = () => --endsMissing === 0 && ports.ended();
  return {
    begin() {},
    afterBackward({ stage }: Action, worker) {
      const count = done[stage]! += 1;
      if (count % every > 0) return;
      const one = model.stages[stage]!;
      let ms = 0;
      for (const size of bucketsOf(one, closing)) ms += bucketMs(one, closing, size);
      ports.work(worker, ms, { what: "optimizer", stage, part: count / every - 1 }, () => {
        if (count === microBatches) ports.at(ports.now() + controlMs, end);
      });
    },
  };
}
