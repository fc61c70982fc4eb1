/**
 * Checks what a host says: the program of a stranger may have its credentials.
 *
 * [Note: what a check can find] A host may speak for its own isolates only: no frame comes from
 * actors elsewhere, ends an isolate that it has not started, or stops an actor of the leader. What an
 * actor of the host says to another actor is not checked here: it may be wrong, as its numbers may.
 *
 * @module
 */

import { starterOf } from "../../runtime/spawning.ts";
import { type ActorRef, isMessage, isRef } from "../../runtime/types.ts";
import type { AgentReport } from "../agent.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Checks a report of a host.
 *
 * @param isolates the isolates of the host: the number in the system of each, by its number here.
 * @throws {RangeError} when no agent sends it.
 */
export function checkReport(
  report: unknown,
  isolates: ReadonlyMap<number, number>,
): asserts report is AgentReport {
  const { kind, isolate, cause, frame } = Object(report) as Fields;
  const own = isolates.get(isolate as number);
  const isSound = own !== undefined && (
    kind === "alive" || kind === "ended" || kind === "gone" && typeof cause === "string" ||
    kind === "frame" && isSoundFrame(frame, own)
  );
  if (isSound) return;
  const { kind: inner = kind } = Object(frame) as Fields;
  throw new RangeError(`it has sent ${JSON.stringify(String(inner).slice(0, 40))}`);
}

/** Returns whether isolate `own` may send a frame to the root. */
function isSoundFrame(frame: unknown, own: number): boolean {
  const fields = Object(frame) as Fields, { kind, isolate, about } = fields;
  switch (kind) {
    case "forward":
      return isNumber(fields["to"]) && Array.isArray(fields["transfer"]) &&
        (isSoundForOthers(fields["frame"], own) || isSoundSubscription(fields, own));
    case "start":
      return startedBy(own, isolate) && isSoundLaunch(fields["launch"], isolate as number) &&
        Array.isArray(fields["transfer"]);
    case "done":
      return isReason(fields["reason"]);
    case "started":
      return isNumber(about);
    case "kill":
      return startedBy(own, isolate) && typeof fields["why"] === "string";
    case "dead-letter":
      return isLetter(fields["letter"]);
    case "event":
      return isRecord(fields["event"]);
    default:
      return isSoundForOthers(frame, own);
  }
}

/** Returns whether isolate `own` forwards a subscription, to an isolate that it has started. */
function isSoundSubscription({ to, frame }: Fields, own: number): boolean {
  const { kind, subscription } = Object(frame) as Fields;
  return kind === "subscribe" && startedBy(own, to) &&
    (subscription === undefined || isRecord(subscription));
}

/** Returns whether isolate `own` may send a frame to other isolates. */
function isSoundForOthers(frame: unknown, own: number): boolean {
  const fields = Object(frame) as Fields, { kind, to, from, message, reason } = fields;
  const isOfOwn = (ref: unknown) => isRef(ref) && ref.isolate === own;
  const asksFor = (question: unknown) =>
    isRecord(question) && question["isolate"] === own && isNumber(question["ask"]);
  switch (kind) {
    case "message": {
      const { replyTo, lane } = fields;
      return isRef(to) && isOfOwn(from) && isMessage(message) &&
        (lane === "control" || lane === "data") && (replyTo === undefined || asksFor(replyTo));
    }
    case "answer":
      return isNumber(fields["ask"]) && isRecord(fields["outcome"]) &&
        (fields["letter"] === undefined || isLetter(fields["letter"]));
    case "withdraw":
      return isRef(to) && asksFor(fields["question"]);
    case "watch":
    case "unwatch":
      return isRef(fields["ref"]) && fields["by"] === own;
    case "down":
      return isOfOwn(fields["ref"]) && isReason(reason);
    case "stop": {
      const { ref, drain } = fields;
      return isRef(ref) && ref.isolate !== 0 && typeof drain === "boolean";
    }
    case "receipt":
      return isRef(to) && isMessage(message);
    case "ended":
      return isRef(fields["parent"]) && isOfOwn(fields["child"]) && isReason(reason);
    default:
      return false;
  }
}

function isSoundLaunch(launch: unknown, isolate: number): boolean {
  const { kind, ref, parent, spec, capacity, place } = Object(launch) as Fields;
  return kind === "launch" && isRef(ref) && (ref as ActorRef).isolate === isolate &&
    isRef(parent) && isRecord(spec) && isNumber(capacity) && isRecord(place);
}

const startedBy = (own: number, isolate: unknown) =>
  isNumber(isolate) && starterOf(isolate) === own;

const isRecord = (value: unknown): value is Fields => typeof value === "object" && value !== null;

const isNumber = (value: unknown): value is number => Number.isSafeInteger(value);

const isReason = (reason: unknown) =>
  reason === "stopped" ||
  isRecord(reason) && typeof reason["kind"] === "string" && isRecord(reason["error"]);

const isLetter = (letter: unknown) => isRecord(letter) && typeof letter["type"] === "string";
