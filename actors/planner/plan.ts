/**
 * The planner: finds the runs of a model on given devices with the shortest steps.
 *
 * [Note: skipped simulations] Every candidate has two lower bounds of its time. The first is its work,
 * shared evenly by the workers; it needs no schedule. The second depends on the placement of stages, but
 * not on the order. Candidates get the second bound in order of the first, and are simulated in order of the
 * larger one, until it exceeds the time of the last wanted run: no later candidate can be better. So
 * the result is that of an exhaustive search.
 *
 * @module
 */

import { assertInput, mebibytes, refusal } from "../../kernels/internal.ts";
import { chooseLayout, type HostLayout } from "../../schedules/internal.ts";
import { createSchedule, type Schedule, type WorkerTimes } from "../../schedules/mod.ts";
import { copiesOf, pipelineCount } from "../pipeline/layout.ts";
import { hostingRefusal, hostShares } from "../pipeline/step.ts";
import { mapFields } from "./costs.ts";
import {
  byTime,
  type Candidate,
  type CandidateRun,
  candidateRun,
  candidatesOf,
  type Forecast,
  isAlike,
  leastBytes,
  leastStepMs,
  type PlanSpace,
  SAME,
} from "./forecast.ts";
import { firstWhere } from "./profile.ts";

/**
 * Explains why a step is longer than the best: by the part with the largest increase, and the part
 * that compensates most of it, if any. Longer kernels also lengthen the bubble, so the bubble is a
 * reason only if its share is larger, or no other part has half of the increase.
 */
export function whyLonger(run: CandidateRun, best: CandidateRun): string {
  const longer = run.stepMs - best.stepMs, more = excessOf(run, best);
  if (longer <= SAME * best.stepMs) return ofMemory(run, best);
  const longestOf = (parts: typeof PARTS) => parts.reduce((a, b) => more[b] > more[a] ? b : a);
  const other = longestOf(PARTS.filter((part) => part !== "bubbleMs"));
  const hasBubble = run.bubble > best.bubble + MORE_BUBBLE || more[other] < longer / 2;
  const worst = hasBubble ? longestOf(PARTS) : other;
  const gain = PARTS.reduce((a, b) => more[b] < more[a] ? b : a);
  const isMade = more[worst] > 1.1 * longer && more[gain] < 0;
  return `${wordsOf(worst, run, best)}: ${milliseconds(more[worst])} more` +
    (isMade ? `, ${PART_WORDS[gain]} ${milliseconds(-more[gain])} less` : "");
}

/** Minimum increase of the bubble's share that counts as a reason. */
const MORE_BUBBLE = 0.005;

const PART_WORDS = {
  busyMs: "kernels",
  dispatchMs: "dispatch",
  communicationMs: "communication",
  bubbleMs: "bubble",
  closingMs: "end of the step",
} as const;

const PARTS = Object.keys(PART_WORDS) as (keyof WorkerTimes)[];

/** Returns the additional milliseconds of each part of a step, compared with another. */
export function excessOf({ parts: own }: CandidateRun, { parts: best }: CandidateRun): WorkerTimes {
  return mapFields(own, (ms, name) => ms - best[name]);
}

function ofMemory(run: CandidateRun, best: CandidateRun): string {
  const more = run.peakBytes - best.peakBytes;
  return more > 0
    ? `memory: as long, ${(100 * more / best.peakBytes).toFixed(0)} % more`
    : "nothing: as long, with as much memory";
}

/** Describes a part of a step by the likely cause of its increase. */
const wordsOf = (part: keyof WorkerTimes, run: CandidateRun, best: CandidateRun): string => ({
  busyMs: busyWords(run, best),
  dispatchMs: "dispatch of more actions",
  communicationMs: "communication between stages",
  bubbleMs: "bubble",
  closingMs: run.replicas > best.replicas
    ? `all-reduce and commit of ${run.replicas} replicas`
    : "optimizer and commit",
}[part]);

/** Describes the difference that lengthens kernels. */
function busyWords(run: CandidateRun, best: CandidateRun): string {
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

/** Describes a candidate. */
export function describeCandidate(candidate: Candidate): string {
  const { workers, replicas, microBatch, recompute, precision } = candidate;
  return [
    `${scheduleWords(candidate)}, D ${workers}, W ${replicas}, B ${microBatch}`,
    ...recompute === "none" ? [] : [`recompute ${recompute}`],
    ...precision === "fp32" ? [] : [precision],
  ].join(", ");
}

/** Prefixes of option values in descriptions. Default: the name. */
const WORDS: Readonly<Record<string, string>> = {
  pipelines: "f ",
  pipelineLimit: "limit ",
  activationLimit: "M ",
  weightBacklog: "K ",
  order: "",
  scale: "",
};

/** Describes the schedule, options and layout of a candidate, such as `interleaved, chunks 2`. */
export function scheduleWords({ schedule, options, layout }: Candidate): string {
  const own = Object.entries(options).map(([name, value]) =>
    `${WORDS[name] ?? `${name} `}${value}`
  );
  return [schedule, ...own, ...layout === undefined ? [] : [`layout ${layout}`]].join(", ");
}

/** Numbers of candidates by outcome. */
const NO_COUNTS = {
  /** All candidates. */
  candidates: 0,
  /** Candidates that cannot be scheduled, trained or predicted. */
  unserved: 0,
  /** Candidates above the memory limit; candidates that are too long are not checked for it. */
  tooLarge: 0,
  /** Candidates whose lower bound is too long. */
  tooLong: 0,
  /** Simulated candidates. */
  simulated: 0,
  /** Candidates for which no time was left. */
  untried: 0,
};

/** Result of the planner. */
export interface RunPlan {
  /** The best runs in order, with one variant of each, such as one number of chunks. */
  readonly best: readonly CandidateRun[];
  /** Number of the first of these that are equal within the spread; 1 without one. */
  readonly equal: number;
  readonly counts: Readonly<typeof NO_COUNTS>;
  /** Reasons against candidates, the most frequent first. */
  readonly refusals: readonly string[];
}

/** Default number of wanted runs. */
const COUNT = 10;

/** Limits of a search. */
interface PlanLimits {
  /** Memory limit of a worker in bytes. Default: none. */
  readonly memoryLimitBytes?: number | undefined;
  /** Number of wanted runs. Default 10. */
  readonly count?: number | undefined;
  /**
   * Relative spread of the profile: runs whose times overlap with the shortest within it are equal,
   * and ordered by memory, then by their schedules' order in the space. Default 0.
   */
  readonly spread?: number | undefined;
  /**
   * Returns the share of the time that is used: the search ends at 1 with the best so far. Bounds take
   * at most half of it, and simulations leave a tenth for tuning.
   */
  readonly used?: (() => number) | undefined;
  /** Receives the number of candidates that have bounds, or of plans that are decided, of all. */
  readonly progress?: ((what: "bounds" | "plans", done: number, all: number) => void) | undefined;
  /** Receives the current plan whenever a shorter run is found. */
  readonly found?: ((plan: RunPlan) => void) | undefined;
}

/** A candidate with the lower bound of its time so far. */
interface Bounded {
  readonly candidate: Candidate;
  /** Place in the space. */
  readonly index: number;
  readonly leastMs: number;
}

/** A candidate with all lower bounds. */
interface Placed extends Bounded {
  readonly leastBytes: number;
}

/** Order of simulations. */
const byBound = (a: Bounded, b: Bounded): number => a.leastMs - b.leastMs || a.index - b.index;

/**
 * Searches a space for the runs with the shortest steps. Equal steps are ordered by memory, then by
 * their order in the space.
 *
 * @throws {RangeError} when no candidate can run, or none fits; the error names the closest one.
 * @throws {Error} when the profile lacks the cost of a layer or the transport.
 */
export function planRuns(
  space: PlanSpace,
  forecast: Forecast,
  limits: PlanLimits = {},
): RunPlan {
  return new PlanSearch(space, forecast, limits).run();
}

/**
 * Limit of micro-batches of a replica. With more, each simulation takes seconds and the bubble is
 * negligible: such a batch needs larger micro-batches.
 */
const MICRO_BATCHES_MAX = 1024;

/** Memory is scarce if this multiple of the least that a run needs exceeds the limit. */
const SCARCE = 4;

/** Shares of the time after which no more candidates are bounded, and simulated. */
const BOUNDS_SHARE = 0.5, PLANS_SHARE = 0.9;

/** Limit of reported reasons. */
const REFUSALS_MAX = 20;

/** Returns a key that variants of the same run share. */
const groupOf = ({ schedule, workers, microBatch, recompute, precision }: Candidate): string =>
  [schedule, workers, microBatch, recompute, precision].join(" ");

class PlanSearch {
  readonly #limit: number;
  readonly #shown: number;
  /** Number of ranked runs: with a spread, enough that a smaller count has the same first runs. */
  readonly #count: number;
  readonly #skeletons = new Map<string, Schedule | RangeError>();
  readonly #found = new Map<string, CandidateRun>();
  readonly #refusals = new Map<string, number>();
  readonly #counts = { ...NO_COUNTS };
  #fastest: CandidateRun | undefined;

  constructor(
    private readonly space: PlanSpace,
    private readonly forecast: Forecast,
    private readonly limits: PlanLimits,
  ) {
    this.#limit = limits.memoryLimitBytes ?? Infinity;
    this.#shown = limits.count ?? COUNT;
    this.#count = limits.spread ? Math.max(COUNT, this.#shown) : this.#shown;
  }

  run(): RunPlan {
    const all = this.#inOrder(candidatesOf(this.space));
    this.#counts.candidates = all.length;
    const large: Placed[] = [], bounded: Bounded[] = [];
    // The first plan is found soon, in case the search is ended early.
    let begun = 0;
    for (; begun < all.length && this.#found.size === 0; begun++) {
      const one = this.#placed(this.#bounded(all[begun]!, begun));
      if (one && !this.#fits(one)) large.push(one);
    }
    for (; begun < all.length && !this.#isOver(BOUNDS_SHARE); begun++) {
      this.limits.progress?.("bounds", begun, all.length);
      const one = this.#bounded(all[begun]!, begun);
      if (one) bounded.push(one);
    }
    this.#counts.untried = all.length - begun;
    this.#searchIn(bounded, large);
    this.#counts.tooLarge = large.length;
    if (this.#found.size === 0) throw this.#nothing(large);
    return this.#planOf(this.#tuned());
  }

  /** Simulates candidates in order of their bounds, and collects those that do not fit. */
  #searchIn(bounded: readonly Bounded[], large: Placed[]): void {
    const queue: (Bounded | Placed)[] = bounded.toSorted((a, b) => byBound(b, a)); // the shortest last
    for (let first = queue.pop(); first; first = queue.pop()) {
      const left = queue.length + 1;
      if (first.leastMs > this.#worstWanted() * (1 + SAME)) {
        this.#counts.tooLong = left;
        return;
      }
      if (this.#isOver(PLANS_SHARE)) {
        this.#counts.untried += left;
        return;
      }
      this.limits.progress?.("plans", bounded.length - left, bounded.length);
      if ("leastBytes" in first) {
        if (!this.#fits(first)) large.push(first);
        continue;
      }
      const placed = this.#placed(first);
      if (!placed) continue;
      const place = firstWhere(queue.length, (index) => byBound(queue[index]!, placed) <= 0);
      queue.splice(place, 0, placed);
    }
  }

  #planOf(ranked: readonly CandidateRun[]): RunPlan {
    const { spread = 0 } = this.limits, { stepMs: leastMs } = ranked[0]!;
    const isEqual = (run: CandidateRun) => run.stepMs * (1 - spread) < leastMs * (1 + spread);
    const rankOf = ({ schedule }: CandidateRun) => this.space.schedules.indexOf(schedule);
    const equal = spread === 0 ? [ranked[0]!] : ranked.filter(isEqual)
      .sort((a, b) => a.peakBytes - b.peakBytes || rankOf(a) - rankOf(b) || a.stepMs - b.stepMs);
    const best = [...equal, ...ranked.filter((run) => !equal.includes(run))], [first] = best;
    return {
      best: best.slice(0, this.#shown).map((one, index) => {
        if (index === 0) return one;
        const reason = index < equal.length
          ? `equal within the spread, ±${(100 * spread).toFixed(1)} %`
          : whyLonger(one, first!);
        return { ...one, reason };
      }),
      equal: Math.min(equal.length, this.#shown),
      counts: { ...this.#counts },
      refusals: this.#reasons(),
    };
  }

  #isOver(share = 1): boolean {
    return (this.limits.used?.() ?? 0) >= share;
  }

  /** Returns candidates with slices, which take the longest to compile, last if time is short. */
  #inOrder(all: readonly Candidate[]): readonly Candidate[] {
    if (!this.limits.used) return all;
    const isSliced = ({ options: { slices = 1 } }: Candidate) => slices > 1;
    return [...all.filter((one) => !isSliced(one)), ...all.filter(isSliced)];
  }

  /** Simulates a candidate; returns false if it does not fit. */
  #fits({ leastBytes, candidate }: Placed): boolean {
    return leastBytes <= this.#limit && this.#simulate(candidate, leastBytes);
  }

  /** Number of runs to predict with varied durations, which may change their order. */
  get #finalists(): number {
    return this.forecast.varied === undefined ? this.#count : Math.max(20, 2 * this.#count);
  }

  /** Time of the last finalist so far. */
  #worstWanted(): number {
    if (this.#found.size < this.#finalists) return Infinity;
    return this.#ranked()[this.#finalists - 1]?.stepMs ?? Infinity;
  }

  /** Returns the found runs in order; equal runs are merged into the first. */
  #ranked(): CandidateRun[] {
    const ranked: CandidateRun[] = [];
    for (const run of [...this.#found.values()].sort(byTime)) {
      const last = ranked.at(-1);
      if (!last || !isAlike(last, run)) ranked.push(run);
      else ranked[ranked.length - 1] = { ...last, alike: [...last.alike, run.schedule] };
    }
    return ranked;
  }

  /** Returns a candidate with the bound that needs no schedule. */
  #bounded(candidate: Candidate, index: number): Bounded | undefined {
    return this.#served(() => {
      const { microBatches } = candidate;
      const must = `micro-batches of a replica must be at most ${MICRO_BATCHES_MAX}`;
      const isFit = microBatches <= MICRO_BATCHES_MAX;
      assertInput(isFit, "plan", must, `up to ${this.space.batch}`);
      return { candidate, index, leastMs: this.forecast.leastWorkMs?.(candidate) ?? 0 };
    });
  }

  /** Returns a candidate with the bounds by its placement. */
  #placed(bounded: Bounded | undefined): Placed | undefined {
    return bounded && this.#served(() => {
      const { candidate, leastMs } = bounded;
      const model = this.forecast.least(candidate, this.#skeleton(candidate));
      return {
        ...bounded,
        leastMs: Math.max(leastMs, leastStepMs(model, candidate.microBatches)),
        leastBytes: leastBytes(model),
      };
    });
  }

  /** Returns a schedule with the same placement, with few micro-batches if possible. */
  #skeleton(candidate: Candidate): Schedule {
    const { schedule, options, workers, microBatches } = candidate;
    const few = [workers, 2 * workers].filter((count) => count < microBatches);
    let made: Schedule | RangeError | undefined;
    for (const count of [...few, microBatches]) {
      const key = JSON.stringify([schedule, options, workers, count]);
      made = this.#skeletons.get(key) ??
        orRefusal(() => scheduleOf({ ...candidate, microBatches: count }));
      this.#skeletons.set(key, made);
      if (!(made instanceof RangeError)) return made;
    }
    throw made;
  }

  /** Returns the reasons against candidates, the most frequent first. */
  #reasons(): string[] {
    return [...this.#refusals].sort(([, a], [, b]) => b - a).slice(0, REFUSALS_MAX)
      .map(([reason]) => reason);
  }

  /** Simulates a candidate; returns false if it does not fit. */
  #simulate(candidate: Candidate, leastBytes: number): boolean {
    const most = this.#worstWanted() * (1 + SAME);
    const run = this.#served(() =>
      this.#predicted(candidate, scheduleOf(candidate), most, leastBytes)
    );
    if (run === "too large") return false;
    if (run !== undefined) this.#counts.simulated++;
    if (run === undefined || run === "too long") return true;
    const key = groupOf(run), before = this.#found.get(key);
    if (before === undefined || byTime(run, before) < 0) this.#found.set(key, run);
    if (this.#fastest === undefined || byTime(run, this.#fastest) < 0) {
      this.#fastest = run;
      this.limits.found?.(this.#planOf(this.#ranked().slice(0, this.#count)));
    }
    return true;
  }

  /** Predicts a candidate if it fits and takes at most `mostMs`; plans memory first if it is scarce. */
  #predicted(
    candidate: Candidate,
    schedule: Schedule,
    mostMs: number,
    leastBytes = 0,
  ): CandidateRun | "too large" | "too long" {
    const bytesOf = () => this.forecast.bytes(candidate, schedule);
    const isLarge = (bytes: readonly number[]) => Math.max(...bytes) > this.#limit;
    const first = leastBytes * SCARCE > this.#limit ? bytesOf() : undefined;
    if (first && isLarge(first)) return "too large";
    const step = this.forecast.step(candidate, schedule, mostMs);
    if (!step || step.stepMs > mostMs) return "too long";
    assertInput(step.stepMs > 0, "plan", "a step must take more than 0 ms", step.stepMs);
    const bytes = first ?? bytesOf();
    return isLarge(bytes) ? "too large" : candidateRun(candidate, step, bytes, this.space.batch);
  }

  /** Calls a function; counts the reason if it refuses a candidate. */
  #served<T>(make: () => T): T | undefined {
    const made = orRefusal(make);
    if (!(made instanceof RangeError)) return made;
    this.#counts.unserved++;
    this.#refusals.set(made.message, 1 + (this.#refusals.get(made.message) ?? 0));
    return undefined;
  }

  /**
   * Returns the best runs with tuned buckets, k and cuts, and with varied durations; as they are if
   * there is no time left, since times with and without varied durations do not compare.
   */
  #tuned(): CandidateRun[] {
    const ranked = this.#ranked().slice(0, this.#finalists), tuned: CandidateRun[] = [];
    for (const run of ranked) {
      if (this.#isOver()) return ranked.slice(0, this.#count);
      tuned.push(this.#cut(this.#tunedStepEnd(run)));
    }
    return tuned.sort(byTime).slice(0, this.#count);
  }

  /** Predicts a run with varied durations, and with a better cut if there is one. */
  #cut(run: CandidateRun): CandidateRun {
    const schedule = scheduleOf(run), even = this.#varied(run, schedule);
    const layout = this.forecast.layout?.(run, schedule);
    if (layout === undefined) return even;
    const cut = this.#shortest(run, schedule, [{ layout }]);
    if (cut === run) return even;
    // Schedules that are equal for stages of equal work may differ with other cuts.
    const varied = this.#varied({ ...cut, alike: [] }, schedule);
    return varied.stepMs < gainMs(even) ? varied : even;
  }

  /** Tunes the bucket and then k. They only affect the all-reduce, so only the best runs are tuned. */
  #tunedStepEnd(run: CandidateRun): CandidateRun {
    const { bucketSizes = [], coarsenings = [] } = this.space, schedule = scheduleOf(run);
    if (run.replicas * pipelineCount(schedule) === 1) return run;
    if (run.leastTunedMs >= gainMs(run)) return run;
    const buckets = bucketSizes.map((bucketSize) => ({ bucketSize }));
    const inBuckets = this.#shortest(run, schedule, buckets);
    return this.#shortest(inBuckets, schedule, coarsenings.map((coarsening) => ({ coarsening })));
  }

  /** Returns the shortest of a run and its changes that fit. */
  #shortest(
    run: CandidateRun,
    schedule: Schedule,
    changes: readonly Pick<Candidate, "bucketSize" | "coarsening" | "layout">[],
  ): CandidateRun {
    return changes.reduce<CandidateRun>((best, change) => {
      const candidate = { ...run, ...change };
      // A bucket that is larger than a stage is refused.
      const made = orRefusal(() => this.#predicted(candidate, schedule, gainMs(best)));
      if (typeof made === "string" || made instanceof RangeError) return best;
      return { ...made, alike: run.alike };
    }, run);
  }

  #varied(run: CandidateRun, schedule: Schedule): CandidateRun {
    const step = this.forecast.varied?.(run, schedule);
    if (step === undefined) return run;
    return { ...candidateRun(run, step, run.memoryBytes, this.space.batch), alike: run.alike };
  }

  /** Returns the error for a search without a result. */
  #nothing(large: readonly Placed[]): Error {
    const { devices, batch } = this.space;
    let least: { candidate: Candidate; bytes: number } | undefined;
    for (const { candidate, leastBytes } of large.toSorted((a, b) => a.leastBytes - b.leastBytes)) {
      if (least && leastBytes >= least.bytes) break;
      const all = this.#served(() => this.forecast.bytes(candidate, scheduleOf(candidate)));
      const bytes = all && Math.max(...all);
      if (bytes !== undefined && bytes < (least?.bytes ?? Infinity)) least = { candidate, bytes };
    }
    if (!least) {
      const cannot = `plan a batch of ${batch} for ${devices} devices`;
      const none = `none: ${this.#reasons()[0] ?? "no schedule serves them"}`;
      return refusal(cannot, "there must be a run that can be trained", none);
    }
    const { candidate, bytes } = least, what = describeCandidate(candidate);
    const must = `it must be at least ${mebibytes(bytes)} a worker (with ${what})`;
    const missing = `${mebibytes(bytes - this.#limit)} too little`;
    const received = `${mebibytes(this.#limit, Math.floor)}, ${missing}`;
    return refusal("plan within the memory limit", must, received);
  }
}

/**
 * Calls a function; returns the error if it refuses a candidate. Other errors are of all candidates,
 * such as a layer that the profile lacks.
 */
function orRefusal<T>(make: () => T): T | RangeError {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return error;
    throw error;
  }
}

/** Minimum relative gain of a bucket size, a k or a layout. */
const TUNED_GAIN = 0.001;

/** The milliseconds to which a change must shorten a step. */
const gainMs = ({ stepMs }: CandidateRun): number => stepMs * (1 - TUNED_GAIN);

/**
 * Creates the schedule of a candidate.
 *
 * @throws {RangeError} when its options are invalid, or it has another number of workers.
 */
export function scheduleOf(
  { schedule: name, options, workers, microBatches }: Candidate,
): Schedule {
  const schedule = createSchedule(name, { ...options, workers, microBatches });
  if (schedule.workers === workers) return schedule;
  throw refusal(`plan the schedule ${name}`, `it must have ${workers} workers`, schedule.workers);
}

/** A planned run after some losses. */
export type RemainingRun = ReturnType<typeof afterLosses>[number];

/**
 * Predicts the best planned run that other workers can host: without losses, and after each number of
 * losses up to a limit. A run without copies of its stages never moves, so it has no layouts with fewer
 * workers.
 *
 * @param best planned runs, the best first.
 * @param layers of the model.
 * @param batch samples of a step of all replicas together.
 * @throws {RangeError} when other workers can host the copies of none.
 */
export function afterLosses(
  best: readonly CandidateRun[],
  forecast: Forecast,
  { layers, batch, losses }: { readonly layers: number; readonly batch: number; losses: number },
) {
  const refusals = best.map((run) => hostingRefusal(scheduleOf(run)));
  const rank = 1 + refusals.indexOf(undefined), planned = best[rank - 1];
  if (!planned) throw new RangeError(refusals[0]);
  const { workers, replicas, microBatches, options } = planned, schedule = scheduleOf(planned);
  const copies = replicas * pipelineCount(schedule);
  const scheduleOptions = { ...options, workers, microBatches };
  const moved = { ...planned, bucketSize: undefined, layout: undefined, reason: undefined };
  const remaining = (lost: number, layout: HostLayout, run: CandidateRun, on: Schedule) => ({
    /** Rank of the plan, from 1. */
    rank,
    /** Workers that are lost. */
    losses: lost,
    /** Workers that remain. */
    workers: workers * replicas - lost,
    layout,
    /** Logical copies of the model, of which each pipeline hosts an equal part. */
    copies,
    /** The prediction. */
    run,
    /** Its samples per second, as a share of those without losses. */
    speed: run.samplesPerSecond / planned.samplesPerSecond,
    /** True if each stage is on two workers, so that the run survives another loss without a restart. */
    canMove: copiesOf(on, layout.pipelines)
      .every((held) => new Set(held.map(({ worker }) => worker)).size > 1),
  });
  const full = remaining(0, { pipelines: replicas, depth: workers }, planned, schedule);
  if (!full.canMove) return [full];
  const most = Math.min(losses, full.workers - 1); // a plan may leave devices idle
  const after = Array.from({ length: most }, (_, i) => {
    const needs = { replicas, microBatches, layers, workers: full.workers - i - 1 };
    const layout = chooseLayout(needs), run = { schedule, scheduleOptions, replicas, layout };
    const [hosted] = hostShares(run, replicas * microBatches).schedules;
    const candidate = { ...moved, workers: layout.depth, replicas: layout.pipelines };
    const step = (forecast.varied ?? forecast.step)(candidate, hosted!)!;
    const bytes = forecast.bytes(candidate, hosted!);
    return remaining(i + 1, layout, candidateRun(candidate, step, bytes, batch), hosted!);
  });
  return [full, ...after];
}
