/**
 * The planner: of all ways to run a model on some devices, those whose steps are shortest.
 *
 * [Note: what is never simulated] Every candidate has a lower bound of its time, and of its bytes,
 * that needs the places of its stages but no order. Candidates are simulated in order of that bound,
 * until the next one's is above the last one that is asked for: no candidate beyond could be among
 * these. So what is found is what an exhaustive search finds.
 *
 * @module
 */

import { mebibytes } from "../../kernels/mod.ts";
import { createSchedule, type Schedule, type WorkerTimes } from "../../schedules/mod.ts";
import { pipesOf } from "../pipeline/layout.ts";
import { mapNumbers } from "./costs.ts";
import {
  byTime,
  type Candidate,
  candidateOf,
  candidatesOf,
  type Forecast,
  isAlike,
  leastBytes,
  leastStepMs,
  type PlannedRun,
  plannedRun,
  type PlanSpace,
  SAME,
} from "./forecast.ts";

/**
 * The reason in a few words: of the parts by which the step is longer the one that is most of it; and
 * what makes up for some of it, where it is more than all. Workers that compute longer wait longer
 * for one another, too: the bubble is a reason where its share is above that of the best one.
 */
function whyLonger(run: PlannedRun, best: PlannedRun): string {
  const longer = run.stepMs - best.stepMs, more = excessOf(run, best);
  if (longer <= SAME * best.stepMs) return ofMemory(run, best);
  const parts = PARTS.filter((part) =>
    part !== "bubbleMs" || run.bubble > best.bubble + MORE_BUBBLE
  );
  const worst = parts.reduce((a, b) => more[b] > more[a] ? b : a);
  const gain = PARTS.reduce((a, b) => more[b] < more[a] ? b : a);
  const isMade = more[worst] > 1.1 * longer && more[gain] < 0;
  return `${wordsOf(worst, run, best)}: ${milliseconds(more[worst])} more` +
    (isMade ? `, ${PART_WORDS[gain]} ${milliseconds(-more[gain])} less` : "");
}

/** A share of the bubble that is above another one by less is no reason. */
const MORE_BUBBLE = 0.005;

const PART_WORDS = {
  busyMs: "kernels",
  dispatchMs: "dispatch",
  communicationMs: "communication",
  bubbleMs: "bubble",
  closingMs: "end of the step",
} as const;

const PARTS = Object.keys(PART_WORDS) as (keyof WorkerTimes)[];

/** Milliseconds of each part by which a step is longer than another; below 0 where it is shorter. */
export function excessOf({ parts: own }: PlannedRun, { parts: best }: PlannedRun): WorkerTimes {
  return mapNumbers(own, (ms, name) => ms - best[name]);
}

function ofMemory(run: PlannedRun, best: PlannedRun): string {
  const more = run.peakBytes - best.peakBytes;
  return more > 0
    ? `memory: as long, ${(100 * more / best.peakBytes).toFixed(0)} % more`
    : "nothing: as long, with as much memory";
}

/** A part of a step in words, as far as these runs tell what it comes from. */
const wordsOf = (part: keyof WorkerTimes, run: PlannedRun, best: PlannedRun): string => ({
  busyMs: busyWords(run, best),
  dispatchMs: "dispatch of more actions",
  communicationMs: "communication between stages",
  bubbleMs: "bubble",
  closingMs: run.replicas > best.replicas
    ? `all-reduce and commit of ${run.replicas} replicas`
    : "optimizer and commit",
}[part]);

/** What differs, and makes workers compute longer. */
function busyWords(run: PlannedRun, best: PlannedRun): string {
  if (run.recompute !== best.recompute && run.recompute !== "none") {
    return `recompute ${run.recompute}`;
  }
  if (run.precision !== best.precision) return `kernels in ${run.precision}`;
  if (run.microBatch !== best.microBatch) {
    return `kernels for ${run.microBatch} samples in place of ${best.microBatch}`;
  }
  return "kernels";
}

const milliseconds = (ms: number) => `${ms < 10 ? ms.toPrecision(2) : Math.round(ms)} ms`;

/** The candidate that needs least, and its bytes. */
interface Unfit {
  readonly candidate: Candidate;
  readonly bytes: number;
}

/**
 * Why there is no plan.
 *
 * @param refusals of candidates that could not be served.
 * @param memory the limit, and what comes closest to it.
 */
function refuseAll(
  { devices, batch }: PlanSpace,
  refusals: readonly string[],
  memory?: { readonly limit: number; readonly least: Unfit | undefined },
): RangeError {
  if (memory?.least === undefined) {
    return new RangeError(
      `Cannot plan a batch of ${batch} for ${devices} devices: there must be a run that can be trained, received none: ${
        refusals[0] ?? "no schedule serves them"
      }`,
    );
  }
  const { limit, least: { candidate, bytes } } = memory;
  return new RangeError(
    `Cannot plan within the memory limit: it must be at least ${mebibytes(bytes)} a worker (with ${
      describeCandidate(candidate)
    }), received ${mebibytes(limit, Math.floor)}, ${mebibytes(bytes - limit)} too little`,
  );
}

/** A candidate in a few words. */
function describeCandidate(candidate: Candidate): string {
  const { workers, replicas, microBatch, recompute, precision } = candidate;
  return [
    scheduleWords(candidate),
    `D ${workers}`,
    `W ${replicas}`,
    `B ${microBatch}`,
    ...recompute === "none" ? [] : [`recompute ${recompute}`],
    ...precision === "fp32" ? [] : [precision],
  ].join(", ");
}

/** Words for options of schedules; of the empty ones the value says enough. */
const WORDS: Readonly<Record<string, string>> = {
  pipelines: "f ",
  pipelineLimit: "limit ",
  order: "",
  scale: "",
};

/** The schedule of a candidate with its options, such as `interleaved, chunks 2`, and its layout. */
export function scheduleWords({ schedule, options, layout }: Candidate): string {
  const own = Object.entries(options).map(([name, value]) =>
    `${WORDS[name] ?? `${name} `}${value}`
  );
  return [schedule, ...own, ...layout === undefined ? [] : [`layout ${layout}`]].join(", ");
}

/** What became of the candidates. */
interface PlanCounts {
  /** All that the space has. */
  readonly candidates: number;
  /** Those that no schedule serves, or that cannot be trained or predicted. */
  readonly unserved: number;
  /** Those that need more than the memory limit. */
  readonly tooLarge: number;
  /** Those that are too long at best. */
  readonly tooLong: number;
  /** Those that were simulated. */
  readonly simulated: number;
}

/** What a planner has found. */
export interface RunPlan {
  /** The best first; of variants of the same run, such as numbers of chunks, one. */
  readonly best: readonly PlannedRun[];
  readonly counts: PlanCounts;
  /** Why candidates were not served, what most were refused for first. */
  readonly refusals: readonly string[];
}

/** What bounds a search. */
interface PlanLimits {
  /** The most bytes of a worker; any unless given. */
  readonly memoryLimitBytes?: number | undefined;
  /** How many are wanted; 10 unless given. */
  readonly count?: number | undefined;
  /** Gets the plan so far, whenever a simulated run is shorter than all before it. */
  readonly found?: ((plan: RunPlan) => void) | undefined;
}

/** A candidate before it is simulated. */
interface Bounded {
  readonly candidate: Candidate;
  readonly leastMs: number;
  readonly leastBytes: number;
}

/**
 * Plans: searches a space for the runs with the shortest steps. Of equal ones the one that needs less
 * memory is first, then the one that the space has first.
 *
 * @throws {RangeError} when nothing can be run, or nothing fits, saying what would.
 */
export function planRuns(
  space: PlanSpace,
  forecast: Forecast,
  limits: PlanLimits = {},
): RunPlan {
  return new PlanSearch(space, forecast, limits).run();
}

/**
 * The most micro-batches of a replica and step. Of more each simulation takes seconds, and bubbles have
 * long become nothing: a larger micro-batch is what such a batch wants.
 */
const MICRO_BATCHES_MAX = 1024;

/** More reasons than a reader wants. */
const REFUSALS_MAX = 20;

/** What variants of the same run have in common. */
const groupOf = ({ schedule, workers, microBatch, recompute, precision }: Candidate): string =>
  [schedule, workers, microBatch, recompute, precision].join(" ");

class PlanSearch {
  readonly #space: PlanSpace;
  readonly #forecast: Forecast;
  readonly #limit: number;
  readonly #count: number;
  readonly #report: PlanLimits["found"];
  readonly #skeletons = new Map<string, Schedule | RangeError>();
  readonly #found = new Map<string, PlannedRun>();
  readonly #refusals = new Map<string, number>();
  readonly #counts = { candidates: 0, unserved: 0, tooLarge: 0, tooLong: 0, simulated: 0 };
  #fastest: PlannedRun | undefined;

  constructor(space: PlanSpace, forecast: Forecast, limits: PlanLimits) {
    this.#space = space;
    this.#forecast = forecast;
    this.#limit = limits.memoryLimitBytes ?? Infinity;
    this.#count = limits.count ?? 10;
    this.#report = limits.found;
  }

  run(): RunPlan {
    const all = candidatesOf(this.#space);
    this.#counts.candidates = all.length;
    const bounded = all.flatMap((candidate) => this.#bound(candidate) ?? [])
      .sort((a, b) => a.leastMs - b.leastMs);
    const large: Bounded[] = [];
    for (const [index, one] of bounded.entries()) {
      if (one.leastMs > this.#worstWanted() * (1 + SAME)) {
        this.#counts.tooLong = bounded.length - index;
        break;
      }
      if (one.leastBytes > this.#limit || !this.#simulate(one.candidate)) large.push(one);
    }
    this.#counts.tooLarge = large.length;
    if (this.#found.size === 0) throw this.#nothing(large);
    return this.#planOf(this.#tuned());
  }

  #planOf(best: readonly PlannedRun[]): RunPlan {
    const [first] = best;
    return {
      best: best.map((one) => one === first ? one : { ...one, reason: whyLonger(one, first!) }),
      counts: { ...this.#counts },
      refusals: this.#whyNot(),
    };
  }

  /** More than are wanted are predicted with durations that vary, as their order may change. */
  get #finalists(): number {
    return this.#forecast.varied === undefined ? this.#count : Math.max(20, 2 * this.#count);
  }

  /** The time of the last finalist, as far as is known. */
  #worstWanted(): number {
    if (this.#found.size < this.#finalists) return Infinity;
    return this.#ranked()[this.#finalists - 1]?.stepMs ?? Infinity;
  }

  /** What was found, in order; of runs that are alike the first that the space has. */
  #ranked(): PlannedRun[] {
    const ranked: PlannedRun[] = [];
    for (const run of [...this.#found.values()].sort(byTime)) {
      const last = ranked.at(-1);
      if (!last || !isAlike(last, run)) ranked.push(run);
      else ranked[ranked.length - 1] = { ...last, alike: [...last.alike, run.schedule] };
    }
    return ranked;
  }

  #bound(candidate: Candidate): Bounded | undefined {
    return this.#served(() => {
      const { microBatches } = candidate;
      if (microBatches > MICRO_BATCHES_MAX) {
        throw new RangeError(
          `Cannot plan: micro-batches of a replica must be at most ${MICRO_BATCHES_MAX}, received up to ${this.#space.batch}`,
        );
      }
      const model = this.#forecast.least(candidate, this.#skeleton(candidate));
      const leastMs = leastStepMs(model, microBatches);
      return { candidate, leastMs, leastBytes: leastBytes(model) };
    });
  }

  /** A schedule with the same placement, of few micro-batches where that can be. */
  #skeleton(candidate: Candidate): Schedule {
    const { schedule, options, workers, microBatches } = candidate;
    for (const few of [workers, 2 * workers]) {
      if (few >= microBatches) break;
      const key = JSON.stringify([schedule, options, workers, few]);
      const known = this.#skeletons.get(key) ??
        orRefusal(() => scheduleOf({ ...candidate, microBatches: few }));
      this.#skeletons.set(key, known);
      if (!(known instanceof RangeError)) return known;
    }
    return scheduleOf(candidate);
  }

  /** Why candidates were not served, what most were refused for first. */
  #whyNot(): string[] {
    return [...this.#refusals].sort(([, a], [, b]) => b - a).slice(0, REFUSALS_MAX)
      .map(([reason]) => reason);
  }

  /** Returns whether a candidate fits, and adds it to the found runs if so. */
  #simulate(candidate: Candidate): boolean {
    const run = this.#served(() => this.#predicted(candidate, scheduleOf(candidate)));
    if (run === "too large") return false;
    if (run === undefined) return true;
    this.#counts.simulated++;
    const key = groupOf(run), before = this.#found.get(key);
    if (before === undefined || byTime(run, before) < 0) this.#found.set(key, run);
    if (this.#fastest === undefined || byTime(run, this.#fastest) < 0) {
      this.#fastest = run;
      this.#report?.(this.#planOf(this.#ranked().slice(0, this.#count)));
    }
    return true;
  }

  /** Predicts a candidate if it fits. */
  #predicted(candidate: Candidate, schedule: Schedule): PlannedRun | "too large" {
    const bytes = this.#forecast.bytes(candidate, schedule);
    if (Math.max(...bytes) > this.#limit) return "too large";
    return plannedRun(
      candidate,
      this.#forecast.step(candidate, schedule),
      bytes,
      this.#space.batch,
    );
  }

  /** Returns what a function makes; where a candidate is refused, counts the reason. */
  #served<T>(make: () => T): T | undefined {
    const made = orRefusal(make);
    if (!(made instanceof RangeError)) return made;
    this.#counts.unserved++;
    this.#refusals.set(made.message, 1 + (this.#refusals.get(made.message) ?? 0));
    return undefined;
  }

  /** The best ones, with the bucket, the k and the cut that suit each, and with durations that vary. */
  #tuned(): PlannedRun[] {
    return this.#ranked().slice(0, this.#finalists)
      .map((run) => this.#cut(this.#closed(run)))
      .sort(byTime).slice(0, this.#count);
  }

  /** A run with durations that vary; cut as its schedule wants it where that is shorter still then. */
  #cut(run: PlannedRun): PlannedRun {
    const schedule = scheduleOf(run), even = this.#varied(run, schedule);
    const layout = this.#forecast.layout?.(run, schedule);
    if (layout === undefined) return even;
    const cut = this.#shortest(run, schedule, [{ layout }]);
    if (cut === run) return even;
    // Schedules that are alike with stages of equal work need not be with others.
    const varied = this.#varied({ ...cut, alike: [] }, schedule);
    return isGain(varied, even) ? varied : even;
  }

  /**
   * A run with the bucket and then the k that suit it: these change the all-reduce alone, and are
   * tried for those that are wanted, not for all.
   */
  #closed(run: PlannedRun): PlannedRun {
    const { bucketSizes = [], coarsenings = [] } = this.#space, schedule = scheduleOf(run);
    if (run.replicas * pipesOf(schedule) === 1) return run;
    const buckets = bucketSizes.map((bucketSize) => ({ bucketSize }));
    const inBuckets = this.#shortest(run, schedule, buckets);
    return this.#shortest(inBuckets, schedule, coarsenings.map((coarsening) => ({ coarsening })));
  }

  /** The shortest of a run and some changes of it that fit. */
  #shortest(
    run: PlannedRun,
    schedule: Schedule,
    changes: readonly Pick<Candidate, "bucketSize" | "coarsening" | "layout">[],
  ): PlannedRun {
    return changes.reduce<PlannedRun>((best, change) => {
      const candidate = { ...candidateOf(run), ...change };
      // A bucket that is larger than a stage is refused.
      const made = orRefusal(() => this.#predicted(candidate, schedule));
      if (made === "too large" || made instanceof RangeError) return best;
      return isGain(made, best) ? { ...made, alike: run.alike } : best;
    }, run);
  }

  #varied(run: PlannedRun, schedule: Schedule): PlannedRun {
    const step = this.#forecast.varied?.(run, schedule);
    if (step === undefined) return run;
    return { ...plannedRun(run, step, run.memoryBytes, this.#space.batch), alike: run.alike };
  }

  #nothing(large: readonly Bounded[]): RangeError {
    if (large.length === 0) return refuseAll(this.#space, this.#whyNot());
    let least: Unfit | undefined;
    for (const { candidate, leastBytes } of large.toSorted((a, b) => a.leastBytes - b.leastBytes)) {
      if (least && leastBytes >= least.bytes) break;
      const bytes = this.#served(() =>
        Math.max(...this.#forecast.bytes(candidate, scheduleOf(candidate)))
      );
      if (bytes !== undefined && bytes < (least?.bytes ?? Infinity)) least = { candidate, bytes };
    }
    return refuseAll(this.#space, this.#whyNot(), { limit: this.#limit, least });
  }
}

/** Returns what a function makes, or the error by which it refuses a candidate. */
function orRefusal<T>(make: () => T): T | RangeError {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return error;
    throw error;
  }
}

/** What a bucket, a k or a layout of its own must win to be worth a flag. */
const TUNED_GAIN = 0.001;

const isGain = (changed: PlannedRun, run: PlannedRun): boolean =>
  changed.stepMs < run.stepMs * (1 - TUNED_GAIN);

/**
 * The schedule of a candidate.
 *
 * @throws {RangeError} when it cannot be served, or takes other workers than it is asked for.
 */
export function scheduleOf(
  { schedule: name, options, workers, microBatches }: Candidate,
): Schedule {
  const schedule = createSchedule(name, { ...options, workers, microBatches });
  if (schedule.workers === workers) return schedule;
  throw new RangeError(
    `Cannot plan the schedule ${name}: it must take as many workers as it is asked for, ${workers}, received ${schedule.workers}`,
  );
}
