/**
 * A supervisor and who asks it: each question ends in an answer or says which worker is gone, and
 * somebody looks whether the workers get on with it.
 *
 * @module
 */

import type { EngineOptions } from "./engine.ts";
import { askUnlessFailed } from "./failing_ask.ts";
import type { Answer, Stalled } from "../../pipeline/protocol.ts";
import { WorkerLostError } from "../recovery/retries.ts";
import {
  type ActorRef,
  type ActorSpec,
  createSystem,
  type Message,
  type System,
} from "../../runtime/mod.ts";
import { openStallWatch, type StallWatch } from "./stall_watch.ts";

/** A worker whose process or thread shows no sign of life for so long has not begun to live. */
const START_MS = 30_000;

/** A worker that is to stop has nothing to finish, and one that is given up has nothing to lose. */
const STOP_GRACE_MS = 1000;

/** A supervisor whose workers are ready. */
export interface Supervised<M extends Message> {
  /**
   * Gets the answer to a message.
   *
   * @throws {WorkerLostError} when a worker is gone or does not move.
   */
  ask<T>(message: M): Promise<T>;
  /** Ends all of them. */
  close(): Promise<void>;
}

/**
 * Starts a supervisor and its workers, in the system of the run or else in one of their own.
 *
 * @param ahead how many steps must have begun, where more than one may, for the oldest to end.
 * @throws {WorkerLostError} when a worker is gone or does not move.
 */
export async function startSupervisor<Init, M extends Message>(
  { seed, observer, stallMs, transport, system: given }: EngineOptions,
  spec: ActorSpec<Init, M>,
  init: NoInfer<Init>,
  ahead = 1,
): Promise<Supervised<M>> {
  const system = given ??
    createSystem({
      seed,
      stopGraceMs: STOP_GRACE_MS,
      ...observer && { observer },
      ...transport && { transport },
    });
  const supervisor = system.spawn<Init, M>(spec, init, {
    id: "supervisor",
    isolate: "local",
  });
  const watch = openStallWatch(system, stallMs, (forMs) => {
    const stalled: Stalled = { type: "Stalled", forMs };
    system.send(supervisor as ActorRef<Message>, stalled, { lane: "control" });
  });
  const ask = watchedAsk<M>(system, supervisor, watch, stallMs, ahead);
  const close = () => {
    watch.close();
    // A system that was given outlives the pipeline.
    return given ? system.stop(supervisor) : system.stop();
  };
  try {
    await ask({ type: "Start" } as Message as M);
  } catch (error) {
    await close();
    throw error;
  }
  return { ask, close };
}

function watchedAsk<M extends Message>(
  system: System,
  supervisor: ActorRef<M>,
  watch: StallWatch,
  stallMs: number,
  ahead: number,
): Supervised<M>["ask"] {
  /** How many steps are waited for that must end; other questions count as enough of them. */
  let waiting = 0;
  const count = (more: number, limitMs: number) => {
    const wasWatched = waiting >= ahead;
    waiting += more;
    const isWatched = waiting >= ahead;
    if (isWatched === wasWatched) return;
    if (isWatched) watch.begin(limitMs);
    else watch.end();
  };
  return async <T>(message: M) => {
    const weight = message.type === "RunStep" ? 1 : ahead;
    count(weight, message.type === "Start" ? Math.max(stallMs, START_MS) : stallMs);
    try {
      const answer = await askUnlessFailed<M, Answer<T>>(system, supervisor, message);
      if ("lost" in answer) throw new WorkerLostError(answer.lost);
      return answer.value;
    } finally {
      count(-weight, stallMs);
    }
  };
}
