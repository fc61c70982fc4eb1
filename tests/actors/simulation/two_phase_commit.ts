/**
 * Two-phase commit whose actors wait by `ctx.ask` and may crash at any moment: a coordinator, three
 * participants, a disk that survives, and a manager that makes again what has crashed.
 *
 * @module
 */

import { ActorFailedError, type Reply } from "../../../actors/runtime/mod.ts";
import type { FaultOptions, World } from "../../../testing.ts";
import { type Any, type AnyActor, type AnyRef, specOf } from "./players.ts";

const PARTICIPANTS = 3;

/** An answer is as late as it may be: nothing here is decided by the clock. */
const ask = (ctx: Any, to: AnyRef, message: object): Promise<Any> =>
  ctx.ask(to, message, { timeoutMs: Infinity });

const here = (name: string) => specOf(import.meta.url, name);

type Decision = "commit" | "abort";

type DiskState = { votes: readonly (boolean | undefined)[]; decision: Decision | undefined };

/** What is written survives; of the decisions the first counts. */
export const disk: AnyActor = (ctx) => {
  const votes: (boolean | undefined)[] = [];
  let decision: Decision | undefined, waiting: Reply[] = [];
  ctx.expose((): DiskState => ({ votes, decision }));
  return {
    Vote: ({ participant, isYes }) => ctx.reply(votes[participant] ??= isYes),
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

/** Votes once, and applies what was decided; a forgetful one takes it that nothing was. */
export const participant: AnyActor = (ctx, { participant, disk, isForgetful }) => {
  let applied: Decision | undefined;
  ctx.expose(() => applied);
  const vote = (isYes: boolean) => ask(ctx, disk, { type: "Vote", participant, isYes });
  return {
    async Prepare() {
      ctx.reply(await vote(true));
      ctx.send(ctx.self, { type: "Learn" });
    },
    async Recover() {
      const voted = await ask(ctx, disk, { type: "Voted", participant });
      if (isForgetful) applied = "abort";
      else if (voted === undefined) await vote(false);
      ctx.send(ctx.self, { type: "Learn" });
    },
    async Learn() {
      applied ??= await ask(ctx, disk, { type: "Await" });
    },
  };
};

/** Collects the votes and decides; one that comes back cannot know them, so it aborts. */
export const coordinator: AnyActor = (ctx, { disk, participants }) => {
  const decide = (decision: Decision) => ask(ctx, disk, { type: "Decide", decision });
  const voteOf = (to: AnyRef) =>
    ask(ctx, to, { type: "Prepare" }).catch((error) => {
      if (error instanceof ActorFailedError) return false;
      throw error;
    });
  return {
    async Go() {
      const votes = await Promise.all(participants.map(voteOf));
      await decide(votes.every(Boolean) ? "commit" : "abort");
    },
    Recover: () => void decide("abort").catch(() => {}),
  };
};

/** Makes the others, and makes them again when they crash. */
export const manager: AnyActor = (ctx, init) => {
  const watched = (name: string, id: string, init: object): AnyRef => {
    const ref = ctx.spawn(here(name), init, { id });
    ctx.watch(ref, () => ({ type: "Down", id }));
    return ref;
  };
  const make = (id: string) =>
    watched("participant", id, { ...init, participant: Number(id.slice("participant-".length)) });
  const common = { disk: init.disk, participants: participants.map(make) };
  const coordinate = () => watched("coordinator", "coordinator", common);
  let coordinator = coordinate();
  return {
    Go: () => ctx.send(coordinator, { type: "Go" }),
    Down({ id }) {
      if (id === "coordinator") coordinator = coordinate();
      ctx.send(id === "coordinator" ? coordinator : make(id), { type: "Recover" });
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
    const wrong = participants.filter((id) => (state(id) ?? decided.decision) !== decided.decision);
    if (wrong.length > 0) return `${wrong} did not apply ${decided.decision}`;
  });
  atEnd("each participant that has voted has applied what was decided", ({ state }) => {
    const { votes } = state<DiskState>("disk")!;
    const missing = participants.filter((id, n) => votes[n] !== undefined && !state(id));
    if (missing.length > 0) return `${missing} did not`;
  });
  system.send(manager, { type: "Go" });
  await idle();
}
