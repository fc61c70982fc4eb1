/**
 * Two-phase commit whose actors wait by `ctx.ask` and may crash at any moment: a coordinator, three
 * participants, a disk that survives, and a manager that makes again what has crashed.
 *
 * @module
 */

import {
  type ActorFactory,
  ActorFailedError,
  type ActorRef,
  type ActorSpec,
  type Message,
  type Reply,
} from "../../../actors/runtime/mod.ts";
import type { FaultOptions, World } from "../../../testing.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

const PARTICIPANTS = 3;

/** An answer is as late as it may be: nothing here is decided by the clock. */
const PATIENT = { timeoutMs: Infinity } as const;

type Decision = "commit" | "abort";

/** What is written survives; of the decisions the first counts. */
type DiskMessage =
  | { readonly type: "Vote"; readonly participant: number; readonly isYes: boolean }
  | { readonly type: "Voted"; readonly participant: number }
  | { readonly type: "Decide"; readonly decision: Decision }
  | { readonly type: "Await" };

interface DiskState {
  readonly votes: readonly (boolean | undefined)[];
  readonly decision: Decision | undefined;
}

const DISK = specOf<undefined, DiskMessage>("disk");

export const disk: ActorFactory<undefined, DiskMessage> = (ctx) => {
  const votes: (boolean | undefined)[] = [];
  let decision: Decision | undefined, waiting: Reply[] = [];
  ctx.expose((): DiskState => ({ votes, decision }));
  return {
    Vote({ participant, isYes }) {
      ctx.reply(votes[participant] ??= isYes);
    },
    Voted: ({ participant }) => ctx.reply(votes[participant]),
    Decide(message) {
      decision ??= message.decision;
      ctx.reply(decision);
      for (const reply of waiting) reply(decision);
      waiting = [];
    },
    Await() {
      if (decision) ctx.reply(decision);
      else waiting.push(ctx.deferReply());
    },
  };
};

/** Votes once, and applies what was decided. */
type ParticipantMessage = { readonly type: "Prepare" } | { readonly type: "Recover" } | {
  readonly type: "Learn";
};

interface ParticipantInit {
  readonly participant: number;
  readonly disk: ActorRef<DiskMessage>;
  /** The planted bug: who comes back takes it that nothing was decided. */
  readonly isForgetful: boolean;
}

const PARTICIPANT = specOf<ParticipantInit, ParticipantMessage>("participant");

export const participant: ActorFactory<ParticipantInit, ParticipantMessage> = (ctx, init) => {
  const { participant, disk, isForgetful } = init, self: ActorRef<ParticipantMessage> = ctx.self;
  let applied: Decision | undefined;
  ctx.expose(() => applied);
  const vote = (isYes: boolean) =>
    ctx.ask<DiskMessage, boolean>(disk, { type: "Vote", participant, isYes }, PATIENT);
  return {
    async Prepare() {
      const isYes = await vote(true);
      ctx.reply(isYes);
      ctx.send(self, { type: "Learn" });
    },
    async Recover() {
      const voted = await ctx.ask<DiskMessage, boolean | undefined>(
        disk,
        { type: "Voted", participant },
        PATIENT,
      );
      if (isForgetful) applied = "abort";
      else if (voted === undefined) await vote(false);
      ctx.send(self, { type: "Learn" });
    },
    async Learn() {
      applied ??= await ctx.ask<DiskMessage, Decision>(disk, { type: "Await" }, PATIENT);
    },
  };
};

/** Collects the votes and decides; one that comes back cannot know them, so it aborts. */
type CoordinatorMessage = { readonly type: "Go" } | { readonly type: "Recover" };

interface CoordinatorInit {
  readonly disk: ActorRef<DiskMessage>;
  readonly participants: readonly ActorRef<ParticipantMessage>[];
}

const COORDINATOR = specOf<CoordinatorInit, CoordinatorMessage>("coordinator");

export const coordinator: ActorFactory<CoordinatorInit, CoordinatorMessage> = (ctx, init) => {
  const { disk, participants } = init;
  const decide = (decision: Decision) =>
    ctx.ask<DiskMessage, Decision>(disk, { type: "Decide", decision }, PATIENT);
  const voteOf = async (to: ActorRef<ParticipantMessage>) => {
    try {
      return await ctx.ask<ParticipantMessage, boolean>(to, { type: "Prepare" }, PATIENT);
    } catch (error) {
      if (error instanceof ActorFailedError) return false;
      throw error;
    }
  };
  return {
    async Go() {
      const votes = await Promise.all(participants.map(voteOf));
      await decide(votes.every(Boolean) ? "commit" : "abort");
    },
    Recover: () => void decide("abort").catch(() => {}),
  };
};

/** Makes the others, and makes them again when they crash. */
type ManagerMessage = { readonly type: "Go" } | { readonly type: "Down"; readonly id: string };

interface ManagerInit {
  readonly disk: ActorRef<DiskMessage>;
  readonly isForgetful: boolean;
}

const MANAGER = specOf<ManagerInit, ManagerMessage>("manager");

export const manager: ActorFactory<ManagerInit, ManagerMessage> = (ctx, { disk, isForgetful }) => {
  const make = (id: string): ActorRef<ParticipantMessage> => {
    const participant = Number(id.slice("participant-".length));
    const ref = ctx.spawn(PARTICIPANT, { participant, disk, isForgetful }, { id });
    ctx.watch(ref, () => ({ type: "Down", id }));
    return ref;
  };
  const participants = Array.from({ length: PARTICIPANTS }, (_, n) => make(`participant-${n}`));
  const coordinate = () => {
    const ref = ctx.spawn(COORDINATOR, { disk, participants }, { id: "coordinator" });
    ctx.watch(ref, () => ({ type: "Down", id: "coordinator" }));
    return ref;
  };
  let coordinator = coordinate();
  return {
    Go: () => ctx.send(coordinator, { type: "Go" }),
    Down({ id }) {
      if (id === "coordinator") {
        coordinator = coordinate();
        ctx.send(coordinator, { type: "Recover" });
      } else ctx.send(make(id), { type: "Recover" });
    },
  };
};

const participants = Array.from({ length: PARTICIPANTS }, (_, n) => `participant-${n}`);

/** Everybody but the disk and the manager may crash. */
export const CRASHES: FaultOptions = {
  kinds: ["crash-before", "crash-amid", "crash-after"],
  actors: ["coordinator", ...participants],
  max: 3,
  rate: 0.05,
};

/** One transaction, whoever crashes in it. */
export async function playCommit(
  { system, settle, idle, invariant, atEnd }: World<unknown>,
  isForgetful: boolean,
): Promise<void> {
  const disk = system.spawn(DISK, undefined, { id: "disk" });
  const manager = system.spawn(MANAGER, { disk, isForgetful }, { id: "manager" });
  await settle();
  invariant("nobody applies what was not decided", ({ state }) => {
    const decided = state<DiskState>("disk")!;
    if (decided.decision === "commit" && decided.votes.filter(Boolean).length < PARTICIPANTS) {
      return `committed with the votes ${decided.votes}`;
    }
    for (const id of participants) {
      const applied = state<Decision>(id);
      if (applied && applied !== decided.decision) {
        return `${id} applied ${applied}, decided is ${decided.decision}`;
      }
    }
  });
  atEnd("who has voted has applied what was decided", ({ state }) => {
    const { votes } = state<DiskState>("disk")!;
    const missing = participants.filter((id, n) => votes[n] !== undefined && !state(id));
    if (missing.length > 0) return `${missing} did not`;
  });
  system.send(manager, { type: "Go" });
  await idle();
}
