/**
 * Two-phase commit whose actors wait by `ctx.ask` and may crash at any moment: a coordinator, three
 * participants, a disk that survives, and a manager that makes again what has crashed.
 *
 * @module
 */

import { ActorFailedError, type Reply } from "../../../actors/runtime/mod.ts";
import type { FaultOptions, World } from "../../../testing.ts";
import { type AnyActor, type AnyRef, specOf } from "./players.ts";

const PARTICIPANTS = 3;

/** An answer is as late as it may be: nothing here is decided by the clock. */
const PATIENT = { timeoutMs: Infinity } as const;

const here = (name: string) => specOf(import.meta.url, name);

type Decision = "commit" | "abort";

interface DiskState {
  readonly votes: readonly (boolean | undefined)[];
  readonly decision: Decision | undefined;
}

/** What is written survives; of the decisions the first counts. */
export const disk: AnyActor = (ctx) => {
  const votes: (boolean | undefined)[] = [];
  let decision: Decision | undefined, waiting: Reply[] = [];
  ctx.expose((): DiskState => ({ votes, decision }));
  return {
    Vote({ participant, isYes }) {
      ctx.reply(votes[participant] ??= isYes);
    },
    Voted: ({ participant }) => ctx.reply(votes[participant]),
    Decide(message) {
      decision ??= message.decision as Decision;
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

interface ParticipantInit {
  readonly participant: number;
  readonly disk: AnyRef;
  /** The planted bug: one that comes back takes it that nothing was decided. */
  readonly isForgetful: boolean;
}

/** Votes once, and applies what was decided. */
export const participant: AnyActor = (ctx, init: ParticipantInit) => {
  const { participant, disk, isForgetful } = init;
  let applied: Decision | undefined;
  ctx.expose(() => applied);
  const vote = (isYes: boolean) => ctx.ask(disk, { type: "Vote", participant, isYes }, PATIENT);
  return {
    async Prepare() {
      ctx.reply(await vote(true));
      ctx.send(ctx.self, { type: "Learn" });
    },
    async Recover() {
      const voted = await ctx.ask(disk, { type: "Voted", participant }, PATIENT);
      if (isForgetful) applied = "abort";
      else if (voted === undefined) await vote(false);
      ctx.send(ctx.self, { type: "Learn" });
    },
    async Learn() {
      applied ??= await ctx.ask(disk, { type: "Await" }, PATIENT) as Decision;
    },
  };
};

interface CoordinatorInit {
  readonly disk: AnyRef;
  readonly participants: readonly AnyRef[];
}

/** Collects the votes and decides; one that comes back cannot know them, so it aborts. */
export const coordinator: AnyActor = (ctx, { disk, participants }: CoordinatorInit) => {
  const decide = (decision: Decision) => ctx.ask(disk, { type: "Decide", decision }, PATIENT);
  const voteOf = async (to: AnyRef) => {
    try {
      return await ctx.ask(to, { type: "Prepare" }, PATIENT);
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
export const manager: AnyActor = (ctx, init: Omit<ParticipantInit, "participant">) => {
  const make = (id: string): AnyRef => {
    const participant = Number(id.slice("participant-".length));
    const ref = ctx.spawn(here("participant"), { ...init, participant }, { id });
    ctx.watch(ref, () => ({ type: "Down", id }));
    return ref;
  };
  const made = participants.map(make);
  const coordinate = (): AnyRef => {
    const common = { disk: init.disk, participants: made };
    const ref = ctx.spawn(here("coordinator"), common, { id: "coordinator" });
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

/** All but the disk and the manager may crash. */
export const CRASHES: FaultOptions = {
  kinds: ["crash-before", "crash-amid", "crash-after"],
  actors: ["coordinator", ...participants],
  max: 3,
  rate: 0.05,
};

/** One transaction, whichever actor crashes in it. */
export async function playCommit(
  { system, settle, idle, invariant, atEnd }: World<unknown>,
  isForgetful: boolean,
): Promise<void> {
  const disk = system.spawn(here("disk"), undefined, { id: "disk" });
  const manager = system.spawn(here("manager"), { disk, isForgetful }, { id: "manager" });
  await settle();
  invariant("no participant applies what was not decided", ({ state }) => {
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
  atEnd("each participant that has voted has applied what was decided", ({ state }) => {
    const { votes } = state<DiskState>("disk")!;
    const missing = participants.filter((id, n) => votes[n] !== undefined && !state(id));
    if (missing.length > 0) return `${missing} did not`;
  });
  system.send(manager, { type: "Go" });
  await idle();
}
