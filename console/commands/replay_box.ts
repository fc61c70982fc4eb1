/**
 * Replays one worker of a black box. The program runs again from the newest checkpoint, which gives
 * the worker its state; then the worker alone gets the messages that the black box has.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { folderEntries, stepFolders } from "../../actors/checkpoints/format.ts";
import {
  actorNumber,
  arraysOf,
  type BlackBox,
  type BoxRecord,
  digestOfMessage,
  type MessageDigest,
  PLAYED,
  readBlackBox,
} from "../../actors/run/black_box.ts";
import type { Message } from "../../actors/runtime/mod.ts";
import { packageVersion } from "../../actors/simulation/journal_writer.ts";
import type { StepRecord } from "../../actors/simulation/recorder.ts";
import { playAlone, type PlayedMessage } from "../../actors/simulation/replay_actor.ts";
import type { SimulateOptions } from "../../actors/simulation/run.ts";
import { ensure, printError } from "../terminal.ts";
import { singleActorFactory } from "./replay_actor.ts";

/** Runs the recorded program again in one isolate, until `signal` ends it; returns its failure. */
type Rerun = (
  args: readonly string[],
  signal: AbortSignal,
  options: Pick<SimulateOptions<undefined>, "onMessage" | "onStep">,
) => Promise<string | undefined>;

/** A worker to replay. */
export interface BoxedWorker {
  readonly path: string;
  readonly actor: string;
  readonly mayHaveChanged: boolean;
  /** Returns the arguments that repeat the run without its checkpoint, or with the user's. */
  readonly argumentsOf: (recorded: readonly string[], isResumed: boolean) => readonly string[];
  readonly rerun: Rerun;
  readonly limits: { readonly trusted: readonly string[]; readonly hangMs: number };
}

/** Messages that are shown. */
const SHOWN = 12;

/** A message of the program that runs again. */
type Repeated = PlayedMessage & { readonly step: number; readonly digest: MessageDigest };

/** The messages of the program that runs again. */
class Rerunner {
  /** Digests of values by actor, step and name of the message. */
  readonly values = new Map<string, Set<number>>();
  /** The messages to the worker. */
  readonly messages: Repeated[] = [];
  readonly #segments = new Map<string, number>();
  #step = 0;
  #last: readonly [Message, MessageDigest] | undefined;

  constructor(private readonly worker: string) {}

  /**
   * Runs to the end of a step.
   *
   * @param keeps whether the messages to the worker are kept.
   */
  async run(rerun: Rerun, args: readonly string[], from: number, to: number, keeps: boolean) {
    const ending = new AbortController();
    this.#step = from + 1;
    this.#segments.clear();
    return await rerun(args, ending.signal, {
      onMessage: (_, received) => {
        const message = received as Message & { readonly request?: { readonly step: number } };
        this.#last = [keeps ? structuredClone(message) : message, digestOf(message)];
        if (message.type === "RunStep") this.#step = message.request!.step;
        if (message.type === "RunStep" && this.#step >= to) ending.abort();
      },
      onStep: (step) => this.#add(step, keeps),
    });
  }

  #add({ actor, from, did }: StepRecord, keeps: boolean): void {
    const [message, digest] = this.#last!, isWorker = actor !== "supervisor";
    const ended = this.#segments.get(actor) ?? this.#step;
    // A worker is in its next step when it has ended one.
    const step = isWorker ? ended : this.#step;
    this.values.getOrInsertComputed(keyOf(actor, step, digest), () => new Set()).add(digest[0]);
    if (keeps && actor === this.worker) {
      const sender = from.slice(0, from.lastIndexOf("#"));
      this.messages.push({ from: sender, message, step, digest });
    }
    if (!isWorker) return;
    const isEnd = did.some((one) => one.startsWith("send supervisor StepDone"));
    this.#segments.set(actor, isEnd ? step + 1 : step);
  }
}

/** Returns the digest of a message; NaNs may have other bits whenever they are computed. */
const digestOf = (message: Message): MessageDigest =>
  isFinite(message) ? digestOfMessage(message) : [0, 0];

const isFinite = (message: Message): boolean =>
  arraysOf(message).every((array) =>
    !(array instanceof Float32Array) || array.every(Number.isFinite)
  );

const keyOf = (actor: string, step: number, digest: MessageDigest) =>
  `${actor} ${step} ${digest[1]}`;

/**
 * Replays a worker.
 *
 * @param begin is called when the input has been checked.
 * @returns the outcome as text, and whether all was as recorded.
 * @throws {TypeError} when a file that the run read is not named.
 * @throws {RangeError} when the black box has no such worker, or no step had begun.
 */
export async function replayWorker(
  boxed: BoxedWorker,
  begin: () => void,
): Promise<[text: string, isSame: boolean]> {
  const { actor, path, limits } = boxed, box = readBlackBox(path), { start } = box;
  checkRun(box, boxed);
  const records = box.last.get(actor)!.filter(({ segment }) =>
    segment >= (start?.since ?? Infinity)
  );
  const hasBegun = start && records.length > 0;
  ensure(hasBegun, `replay ${actor}`, "a step must have begun", "none", RangeError);
  boxed.argumentsOf(box.facts.train, false);
  begin();
  const from = start.step + records[0]!.segment - 1, to = start.step + records.at(-1)!.segment;
  const again = new Rerunner(actor), failure = await repeatSteps(boxed, box, again, from, to);
  const { messages, computed, missing } = messagesTo(records, again.messages, start.step);
  const isBegun = again.messages.length > 2;
  if (!isBegun) throw new Error(`Cannot replay ${actor}: the run must begin again; ${failure}`);
  const { found, add } = openAnswers(actor, recordsOf(box)), shown: string[] = [];
  const factory = await singleActorFactory(messages[0]!.message);
  const error = await playAlone(factory!, messages, limits, ({ to, value }) => {
    const { step } = messages[shown.length]!;
    add(to?.id, step, value as Message);
  }, ({ from, message }, activity) => {
    const { step } = messages[shown.length]!,
      does = activity === "" ? "" : `, which ran ${activity}`;
    shown.push(`step ${step}: ${message.type} from ${from}${does}`);
  });
  const different = differenceOf(box, again);
  const kept = computed === 0 ? "all kept" : `${computed} of them computed again`;
  const what = `${shown.length - 2} messages of steps ${from + 1} to ${to}`;
  const lines = [
    ...shown.slice(2).slice(-SHOWN),
    `${actor}: ${what}, ${kept}; ${found.same} answers as recorded`,
    ...error === undefined ? [] : [`At the last message it fails: ${error}`],
    ...found.notFinite ? [`The first value that is not finite is in ${found.notFinite}`] : [],
    ...found.different ? [`Different from the record: ${found.different}`] : [],
    ...missing ? [`Not kept, and not the same when computed again: ${missing}`] : [],
    different ?? "What the other actors sent is the same when computed again.",
  ];
  return [lines.join("\n"), !found.different && !missing && !different];
}

function checkRun({ facts, last }: BlackBox, { actor, mayHaveChanged }: BoxedWorker): void {
  const workers = [...last.keys()], { package: version } = facts;
  const cannot = "replay a black box", isSame = mayHaveChanged || version === packageVersion;
  const known = `--actor must be one of ${workers.join(", ")}`;
  ensure(last.has(actor), cannot, known, actor, RangeError);
  const must = `its package version must be ${packageVersion}`;
  ensure(isSame, cannot, must, version, RangeError);
}

/** Runs the program from the newest checkpoint to the end of step `to`; returns its failure. */
async function repeatSteps(
  { path, argumentsOf, rerun }: BoxedWorker,
  { facts: { train, after } }: BlackBox,
  again: Rerunner,
  from: number,
  to: number,
): Promise<string | undefined> {
  const folder = dirname(path), temporary = await Deno.makeTempDir();
  const argumentsIn = (name: string, resume: string | undefined) => [
    ...argumentsOf(train, resume === undefined && after > 0),
    ...resume === undefined ? [] : [`--resume=${resume}`],
    `--out=${join(temporary, name)}`,
  ];
  try {
    const [checkpoint] = stepFolders(await folderEntries(folder)).filter(({ kind, step }) =>
      kind === "whole" && step <= from
    );
    const at = checkpoint?.step ?? after;
    printError(`Repeating steps ${at + 1} to ${to}`);
    let resume = checkpoint && join(folder, checkpoint.name);
    if (at < from) {
      const failure = await again.run(rerun, argumentsIn("before", resume), at, from, false);
      if (failure) throw new Error(`Cannot repeat steps ${at + 1} to ${from}: ${failure}`);
      resume = join(temporary, "before");
    }
    return await again.run(rerun, argumentsIn("after", resume), from, to, true);
  } finally {
    await Deno.remove(temporary, { recursive: true });
  }
}

/** Returns whether a message has its values: of sums in memory that threads share it has none. */
const hasValues = ({ type, message }: BoxRecord) =>
  type !== "ReducePart" || (message as Message & { part: { values?: unknown } }).part.values;

/**
 * Returns the messages to play, up to the first that was not kept and is not the same when it is
 * computed again.
 */
function messagesTo(records: readonly BoxRecord[], again: readonly Repeated[], start: number) {
  const rest = [...again], messages: Repeated[] = [];
  const take = (fits: (one: Repeated) => boolean) => {
    const index = rest.findIndex(fits);
    return index < 0 ? [] : rest.splice(index, 1);
  };
  const typed = (type: string, at?: number) => ({ message, step }: Repeated) =>
    message.type === type && (at === undefined || at === step);
  messages.push(...take(typed("init")), ...take(typed("Connect")));
  let computed = 0, round: unknown;
  /** Adds a message that was computed again, in the recorded round: the attempts are counted anew. */
  const compute = ({ message, ...one }: Repeated) => {
    const isOfRound = "round" in message && round !== undefined;
    messages.push({ ...one, message: isOfRound ? { ...message, round } as Message : message });
    computed++;
  };
  for (const record of records) {
    const { type, digest, from, message } = record, step = start + record.segment;
    if (!PLAYED.has(type) || message && !hasValues(record)) continue;
    const [twin] = take((one) =>
      typed(type, step)(one) && one.from === from && one.digest[1] === digest[1]
    );
    // A mirror of another stage has buckets, too; the program runs again without mirrors.
    if (type === "StepBucket" && !twin) continue;
    if (type === "Begin") round = (message as { round?: number } | undefined)?.round;
    if (message) messages.push({ from, message, step, digest });
    else if (twin?.digest[0] === digest[0]) compute(twin!);
    else return { messages, computed, missing: `${type} from ${from} in step ${step}` };
    const isShared = records.some((one) => one.segment === record.segment && !hasValues(one));
    if (type !== "Reduce" || !isShared) continue;
    for (let part; ([part] = take(typed("ReducePart", step)), part);) compute(part);
  }
  return { messages, computed };
}

/** Returns all records of values, with their receivers. */
function recordsOf({ records, last, start }: BlackBox) {
  return [...records, ...last].flatMap(([actor, own]) =>
    own.filter(({ digest, segment }) => digest[1] !== 0 && segment >= start!.since)
      .map((record) => ({ actor, record, step: start!.step + record.segment }))
  );
}

/** Returns the first recorded message whose values differ from those computed again. */
function differenceOf(box: BlackBox, { values }: Rerunner): string | undefined {
  const different = recordsOf(box).filter(({ actor, record: { digest }, step }) =>
    values.get(keyOf(actor, step, digest))?.has(digest[0]) === false
  ).sort((a, b) => a.step - b.step || actorNumber(a.actor) - actorNumber(b.actor));
  const [first] = different;
  return first &&
    `${different.length} messages differ from those computed again; the first is ${first.record.type} from ${first.record.from} to ${first.actor} in step ${first.step}`;
}

/** Compares what a worker sends with what others have received. */
function openAnswers(worker: string, records: ReturnType<typeof recordsOf>) {
  const recorded = new Map<string, Set<number>>();
  const found = { same: 0, different: "", notFinite: "" };
  for (const { actor, record: { from, digest }, step } of records) {
    if (from !== worker) continue;
    recorded.getOrInsertComputed(keyOf(actor, step, digest), () => new Set()).add(digest[0]);
  }
  const add = (to: string | undefined, step: number, message: Message | undefined) => {
    if (to === undefined || typeof message?.type !== "string") return;
    const digest = digestOf(message), name = `${message.type} to ${to} in step ${step}`;
    if (!isFinite(message)) found.notFinite ||= name;
    const known = digest[1] === 0 ? undefined : recorded.get(keyOf(to, step, digest));
    if (known?.has(digest[0])) found.same++;
    else if (known) found.different ||= name;
  };
  return { found, add };
}
