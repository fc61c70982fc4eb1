/**
 * The time of a worker in which it did nothing, and why.
 *
 * @module
 */

import { formatAction } from "../../../schedules/mod.ts";
import { sentAt } from "./flows.ts";
import { computes, type Span } from "./span.ts";

/**
 * Why a worker did nothing:
 *
 * - `input`: another worker was still computing what it needed;
 * - `message`: that was computed, and on its way;
 * - `inject`: stage 0 waited for its next micro-batch, of which so many may be under way;
 * - `reduce`: the all-reduce waited for another copy of the stage;
 * - `optimizer`: the commit waited for the last gradients of others;
 * - `pause`: between two actions, whose inputs were there: messages, the choice of the next;
 * - `idle`: it had nothing to do any more, while others went on.
 */
export type GapKind = "input" | "message" | "inject" | "reduce" | "optimizer" | "pause" | "idle";

/** Some time in which a worker did nothing. */
export interface Gap {
  /** The worker, counted over all data-parallel replicas. */
  readonly worker: number;
  /** When it began, in milliseconds since the epoch. */
  readonly start: number;
  /** When it ended. */
  readonly end: number;
  /** Why. */
  readonly kind: GapKind;
  /** The same in words: `waits for worker 1: 2F0`. */
  readonly cause: string;
  /** The action on another worker that ended last before the gap closed, where it waited for one. */
  readonly by?: { readonly worker: number; readonly name: string } | undefined;
}

/** What gaps of a worker are told from. */
export interface GapSources {
  /** When the step began and ended. */
  readonly start: number;
  readonly end: number;
  /** For each span whose inputs came from other workers the one that gave the last of them. */
  readonly senderOf: ReadonlyMap<Span, Span>;
  /** What all workers did. */
  readonly all: readonly Span[];
}

/** The gaps of one worker, in the order of time. */
export function gapsOf(worker: number, own: readonly Span[], sources: GapSources): Gap[] {
  const gaps: Gap[] = [], { start, end } = sources;
  let free = start, before: Span | undefined;
  for (const span of own) {
    if (span.start > free) gaps.push(...gapsBefore(span, free, before, sources));
    free = Math.max(free, span.end);
    before = span;
  }
  if (end > free) {
    gaps.push({ worker, start: free, end, kind: "idle", cause: "nothing to do" });
  }
  return gaps;
}

/** Why a worker that was free did not begin an action: one reason after the other. */
function gapsBefore(
  span: Span,
  free: number,
  before: Span | undefined,
  sources: GapSources,
): Gap[] {
  if (computes(span)) return beforeAction(span, free, sources.senderOf.get(span));
  const { worker, start: end, kind, stages } = span, from = { worker, start: free, end };
  const by = lastOther(span, free, sources.all);
  if (!by || kind === "other") return [{ ...from, kind: "pause", cause: PAUSE }];
  const { worker: other, name } = by, told = { worker: other, name };
  if (kind === "reduce") {
    const many = stages.length === 1 ? "stage" : "stages";
    const cause = `all-reduce of ${many} ${stages.join(", ")}: waits for worker ${other}: ${name}`;
    return [{ ...from, kind: "reduce", cause, by: told }];
  }
  if (before?.kind === "optimizer") return [{ ...from, kind: "pause", cause: PAUSE }];
  const cause = `optimizer: waits for worker ${other}: ${name}`;
  return [{ ...from, kind: "optimizer", cause, by: told }];
}

const PAUSE = "between two actions";

function beforeAction(span: Span, free: number, sender: Span | undefined): Gap[] {
  const { worker, start, arrived = sender ? sentAt(sender) : free } = span;
  const gaps: Gap[] = [];
  let at = free;
  const until = (end: number, gap: Pick<Gap, "kind" | "cause" | "by">) => {
    const to = Math.min(end, start);
    if (to > at) gaps.push({ worker, start: at, end: to, ...gap });
    at = Math.max(at, to);
  };
  if (sender) {
    const { worker: other, name } = sender, by = { worker: other, name };
    until(Math.min(sentAt(sender), arrived), {
      kind: "input",
      cause: `waits for worker ${other}: ${name}`,
      by,
    });
    until(arrived, {
      kind: "message",
      cause: `waits for the message of worker ${other}: ${name}`,
      by,
    });
  } else {
    const cause = `waits for the next micro-batch: ${formatAction(span.actions[0]!)}`;
    until(arrived, { kind: "inject", cause });
  }
  until(start, { kind: "pause", cause: PAUSE });
  return gaps;
}

/**
 * What ended last on another worker while this one was free: for an all-reduce, of its stages. An
 * action votes shortly before its end, so one that has not quite ended counts, too.
 */
function lastOther(span: Span, free: number, all: readonly Span[]): Span | undefined {
  const { worker, start, kind, stages, chunk } = span;
  // It begins when all copies have voted, and goes on as parts of its chunks come.
  const counts = chunk === undefined ? computes : ({ kind }: Span) => kind === "reduce";
  const others = all.filter((one) =>
    one.worker !== worker && one.kind !== "optimizer" && one.start < start && one.end > free &&
    (kind !== "reduce" || counts(one) && one.stages.some((stage) => stages.includes(stage)))
  );
  const awayMs = ({ end }: Span) => Math.abs(start - end);
  return others.sort((a, b) => awayMs(a) - awayMs(b))[0];
}
