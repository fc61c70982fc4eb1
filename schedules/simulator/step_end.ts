/**
 * The end of a step with a flush, as the training actors end it: votes, all-reduce, commit.
 *
 * [Note: the simulated commit] Who tells whom what, and in which order a worker starts chunks and
 * steps buckets, is what the supervisor and the workers do: a copy votes after its last backward;
 * `Reduce` goes out when all have voted, or all copies of an eager stage; two chunks of a copy are
 * under way; a bucket is stepped at a time, and what arrives between two of them goes first; the
 * norm, where gradients are clipped, is awaited. Data-parallel replicas are equal: one is simulated,
 * the all-reduce has the ranks of all, and the supervisor hears as many messages. All-reduces of a
 * worker take turns, but not with its messages between stages, of which few are left by then.
 *
 * @module
 */

import type { Action } from "../action.ts";
import type { Schedule } from "../schedule.ts";
import type { Closing, ClosingSpan, Link, StageModel, StepModel } from "./model.ts";
import { reduceHalf } from "./network.ts";

/** A copy of a stage on a worker. */
interface Copy {
  readonly worker: number;
  readonly group: Group;
  /** Backwards that are still to run, in slices of micro-batches. */
  missing: number;
  /** Chunks started, and those whose sums are there. */
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

/** Buckets `first` to `end` − 1 of a stage, and how many copies have come to where it is. */
export interface Chunk {
  readonly index: number;
  readonly first: number;
  readonly end: number;
  readonly bytes: number;
  startMs: number;
  arrived: number;
}

/** What a bucket of a stage takes to be stepped, its states fetched and put back. */
function bucketMs(
  { optimizerMs = 0, gradientBytes = 0 }: StageModel,
  { offload }: Closing,
  bytes: number,
): number {
  const stepMs = gradientBytes === 0 ? optimizerMs : optimizerMs * bytes / gradientBytes;
  if (offload === undefined) return stepMs;
  const { link: { latencyMs, bytesPerMs = Infinity }, loadRatio, storeRatio } = offload;
  return stepMs + 2 * latencyMs + (loadRatio + storeRatio) * bytes / bytesPerMs;
}

/** The bytes of each bucket of a stage; one without bytes where it has no gradients. */
function bucketsOf({ gradientBytes = 0 }: StageModel, { bucketBytes }: Closing): number[] {
  const most = bucketBytes ?? gradientBytes,
    count = Math.max(1, Math.ceil(gradientBytes / most) || 1);
  return Array.from({ length: count }, (_, b) => Math.min(most, gradientBytes - b * most));
}

/** The copies of a stage, none of which is placed yet. */
function openGroup(stage: number, model: StageModel, closing: Closing): Group {
  const buckets = bucketsOf(model, closing), { coarsening = 1 } = closing;
  const chunks = Array.from({ length: Math.ceil(buckets.length / coarsening) }, (_, index) => {
    const first = index * coarsening, end = Math.min(first + coarsening, buckets.length);
    const bytes = buckets.slice(first, end).reduce((sum, size) => sum + size, 0);
    return { index, first, end, bytes, startMs: 0, arrived: 0 };
  });
  return { stage, copies: [], buckets, chunks, votesMissing: 0, isReducing: false };
}

/** Places the copies: that of a stage in a replica of the pipeline at `replica * stages + stage`. */
function placeCopies(schedule: Schedule, groups: readonly Group[]): Copy[] {
  const microBatches = new Map<number, number>(), copies: Copy[] = [];
  for (const replica of schedule.replicaOf) {
    microBatches.set(replica, (microBatches.get(replica) ?? 0) + 1);
  }
  schedule.placement.forEach((held, worker) => {
    for (const { stage, replica } of held) {
      const group = groups[stage]!,
        missing = (microBatches.get(replica) ?? 0) * (schedule.slices ?? 1);
      const copy = { worker, group, missing, started: 0, complete: 0 };
      group.copies.push(copy);
      group.votesMissing++;
      copies[replica * schedule.stages + stage] = copy;
    }
  });
  return copies;
}

/** What the end of a step asks of the simulation. */
export interface EndPorts {
  /** The time. */
  now(): number;
  /** Something happens later. */
  at(timeMs: number, then: () => void): void;
  /** A worker does something, when it is free and before its next action. */
  work(worker: number, ms: number, span: SpanName, then: () => void): void;
  /** A chunk was on its way. */
  note(worker: number, span: ClosingSpan): void;
  /** The step has ended for all workers. */
  ended(): void;
}

/** How a step ends. */
export interface StepEnd {
  /** The step begins. */
  begin(): void;
  /** A full backward, or the one for the weights, has ended for a micro-batch or a half of it. */
  afterBackward(part: Action, worker: number): void;
}

/** What a worker does. */
export type SpanName = Pick<ClosingSpan, "what" | "stage" | "part">;

/** The training actors have two chunks of a copy under way. */
const CHUNKS_UNDER_WAY = 2;

const NO_TIME: Link = { latencyMs: 0 };

/** What is left to do for a worker. */
interface WorkerEnd {
  readonly copies: readonly Copy[];
  /** Copies that have not voted. */
  votesMissing: number;
  /** Buckets that may be stepped. */
  readonly due: { readonly copy: Copy; readonly bucket: number }[];
  sumsMissing: number;
  bucketsMissing: number;
  isCommitted: boolean;
  isStepping: boolean;
}

/** The end of one step. */
export class CommittedEnd implements StepEnd {
  readonly #model: StepModel;
  readonly #closing: Closing;
  readonly #replicas: number;
  readonly #ports: EndPorts;
  readonly #groups: readonly Group[];
  readonly #workers: readonly WorkerEnd[];
  /** The copy of a stage in a replica of the pipeline, at index `replica * stages + stage`. */
  readonly #copies: readonly Copy[];
  /** Until when the all-reduces of each worker keep its link. */
  readonly #linkFree: Float64Array;
  /** Whether ranks go on by themselves. */
  readonly #asksNobody: boolean;
  #votesMissing: number;
  #sumsMissing: number;
  #endsMissing: number;
  #supervisorFree = 0;

  constructor(model: StepModel, closing: Closing, ports: EndPorts) {
    const { schedule, replicas = 1, stages } = model;
    this.#model = model;
    this.#closing = closing;
    this.#replicas = replicas;
    this.#asksNobody = closing.protocol === "ranks";
    this.#ports = ports;
    this.#groups = stages.map((stage, index) => openGroup(index, stage, closing));
    this.#copies = placeCopies(schedule, this.#groups);
    this.#workers = schedule.placement.map((held) => {
      const copies = held.map(({ replica, stage }) =>
        this.#copies[replica * schedule.stages + stage]!
      );
      return {
        copies,
        votesMissing: copies.length,
        due: [],
        sumsMissing: copies.length,
        bucketsMissing: copies.reduce((sum, { group }) => sum + group.buckets.length, 0),
        isCommitted: false,
        isStepping: false,
      };
    });
    this.#linkFree = new Float64Array(schedule.workers);
    this.#votesMissing = this.#copies.length;
    this.#sumsMissing = schedule.workers;
    this.#endsMissing = schedule.workers;
  }

  /** Copies without a micro-batch vote at once. */
  begin(): void {
    if (this.#asksNobody && !this.#closing.isClipped) {
      for (const worker of this.#workers) worker.isCommitted = true;
    }
    for (const copy of this.#copies) if (copy.missing === 0) this.#check(copy);
  }

  afterBackward({ stage, microBatch, half }: Action): void {
    const { replicaOf, stages, slices = 1 } = this.#model.schedule;
    const copy = this.#copies[replicaOf[microBatch]! * stages + stage]!;
    copy.missing -= half === undefined ? 1 : slices / 2;
    if (copy.missing === 0) this.#check(copy);
  }

  #check(copy: Copy): void {
    const { worker, group: { stage } } = copy, ms = this.#model.stages[stage]!.checkMs ?? 0;
    this.#ports.work(worker, ms, { what: "check", stage, part: 0 }, () => {
      this.#workers[worker]!.votesMissing--;
      this.#tell(() => this.#vote(copy));
    });
  }

  #vote(copy: Copy): void {
    const { group } = copy, { eagerStages = [], isClipped = false } = this.#closing;
    const isEager = eagerStages.includes(group.stage);
    group.votesMissing--;
    if (--this.#votesMissing === 0) {
      this.#reduce(this.#groups);
      if (!isClipped) this.#commit();
    } else if (this.#asksNobody) {
      if (isEager) this.#start(copy);
      const { copies, votesMissing } = this.#workers[copy.worker]!;
      if (votesMissing === 0) { for (const one of copies) this.#start(one); }
    } else if (isEager && group.votesMissing === 0) this.#reduce([group]);
  }

  /** A worker of each replica tells the supervisor, which hears one after the other. */
  #tell(then: () => void): void {
    if (this.#asksNobody) return then();
    const { handleMs = 0 } = this.#closing, { controlMs = 0 } = this.#model;
    const heard = Math.max(this.#supervisorFree, this.#ports.now() + controlMs) +
      handleMs * this.#replicas;
    this.#supervisorFree = heard;
    this.#ports.at(heard, then);
  }

  /** The supervisor tells all workers. */
  #tellAll(then: () => void): void {
    if (this.#asksNobody) return then();
    this.#ports.at(this.#ports.now() + (this.#model.controlMs ?? 0), then);
  }

  #reduce(groups: readonly Group[]): void {
    const waiting = groups.filter(({ isReducing }) => !isReducing);
    for (const group of waiting) group.isReducing = true;
    this.#tellAll(() => {
      for (const { copies } of waiting) for (const copy of copies) this.#start(copy);
    });
  }

  /** Starts the first chunks of a copy. */
  #start(copy: Copy): void {
    if (copy.started > 0) return;
    const { chunksUnderWay = CHUNKS_UNDER_WAY } = this.#closing;
    while (this.#startChunk(copy, chunksUnderWay));
  }

  #startChunk(copy: Copy, most: number): boolean {
    const { worker, group } = copy, { stage, chunks } = group;
    if (copy.started >= Math.min(most, chunks.length)) return false;
    const chunk = chunks[copy.started++]!;
    const ms = this.#ranks(group) === 1 ? 0 : this.#closing.launchMs ?? 0;
    this.#ports.work(worker, ms, { what: "launch", stage, part: chunk.index }, () => {
      if (!this.#isLast(group, chunk)) return;
      chunk.startMs = this.#ports.now();
      this.#transfer(group, chunk, () => this.#add(group, chunk));
    });
    return true;
  }

  /** Whether all copies have now come to where the first ones wait with a chunk. */
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
    const { algorithm = "direct", link = this.#model.network?.link ?? NO_TIME } = this.#closing;
    const { latencyMs, transferMs } = reduceHalf(algorithm, this.#ranks(group), chunk.bytes, link);
    let start = this.#ports.now();
    for (const { worker } of group.copies) start = Math.max(start, this.#linkFree[worker]!);
    for (const { worker } of group.copies) this.#linkFree[worker] = start + transferMs;
    this.#ports.at(start + transferMs + latencyMs, then);
  }

  /** Each rank adds its slice of the chunk, and the sums go around. */
  #add(group: Group, chunk: Chunk): void {
    const ranks = this.#ranks(group), { addBytesPerMs = Infinity } = this.#closing;
    const ms = (ranks - 1) / ranks * chunk.bytes / addBytesPerMs;
    for (const { worker } of group.copies) {
      this.#ports.work(worker, ms, { what: "add", stage: group.stage, part: chunk.index }, () => {
        if (!this.#isLast(group, chunk)) return;
        this.#transfer(group, chunk, () => {
          for (const copy of group.copies) this.#takeSums(copy, chunk);
        });
      });
    }
  }

  #takeSums(copy: Copy, { index, first, end, startMs }: Chunk): void {
    const { worker: index_, group } = copy, worker = this.#workers[index_]!;
    const endMs = this.#ports.now();
    if (this.#ranks(group) > 1) {
      const span = { what: "reduce", stage: group.stage, part: index, startMs, endMs } as const;
      this.#ports.note(index_, span);
    }
    copy.complete++;
    this.#startChunk(copy, Infinity);
    for (let bucket = first; bucket < end; bucket++) worker.due.push({ copy, bucket });
    this.#stepNext(index_);
    if (copy.complete < group.chunks.length || --worker.sumsMissing > 0) return;
    if (this.#closing.isClipped) this.#tell(() => --this.#sumsMissing === 0 && this.#commit());
  }

  #commit(): void {
    this.#tellAll(() => {
      for (const [index, worker] of this.#workers.entries()) {
        if (worker.isCommitted) continue;
        worker.isCommitted = true;
        if (worker.bucketsMissing === 0) this.#endFor();
        this.#stepNext(index);
      }
    });
  }

  /** Steps the next bucket of a worker; then, behind what has come meanwhile, the one after it. */
  #stepNext(index: number): void {
    const worker = this.#workers[index]!;
    if (worker.isStepping || !worker.isCommitted || worker.due.length === 0) return;
    const { copy: { group }, bucket } = worker.due.shift()!;
    const { stage, buckets } = group;
    const ms = bucketMs(this.#model.stages[stage]!, this.#closing, buckets[bucket]!);
    worker.isStepping = true;
    this.#ports.work(index, ms, { what: "optimizer", stage, part: bucket }, () => {
      worker.isStepping = false;
      if (--worker.bucketsMissing === 0) this.#endFor();
      else this.#stepNext(index);
    });
  }

  #endFor(): void {
    this.#tell(() => --this.#endsMissing === 0 && this.#ports.ended());
  }
}

/** Steps the weights of a stage after each of its backwards, or after the last of the step. */
export function openLocalEnd(model: StepModel, closing: Closing, ports: EndPorts): StepEnd {
  const { schedule: { updates, microBatches, stages }, controlMs = 0 } = model;
  const every = updates === "every-backward" ? 1 : microBatches;
  const done = new Int32Array(stages);
  let endsMissing = stages;
  const end = () => --endsMissing === 0 && ports.ended();
  return {
    begin() {},
    afterBackward({ stage }: Action, worker) {
      const count = done[stage] = done[stage]! + 1;
      if (count % every > 0) return;
      const one = model.stages[stage]!;
      const ms = bucketsOf(one, closing).reduce(
        (sum, size) => sum + bucketMs(one, closing, size),
        0,
      );
      ports.work(worker, ms, { what: "optimizer", stage, part: count / every - 1 }, () => {
        if (count === microBatches) ports.at(ports.now() + controlMs, end);
      });
    },
  };
}
