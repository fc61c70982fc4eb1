/**
 * A pool: one address for several actors that do the same.
 *
 * @module
 */

import { type Context, type Placement, placementOf, type SpawnOptions } from "../context_api.ts";
import { ActorFailedError, type Down } from "../failure.ts";
import { type ActorFactory, DOOR, OTHERS } from "../handlers.ts";
import { countRestarts, type RestartLimits, type Restarts } from "../supervision/restarts.ts";
import type { ActorRef, ActorSpec, AnySpec, Message } from "../types.ts";

/** What a pool is made of. */
export interface Pool<I, M extends Message> extends Partial<RestartLimits>, Placement {
  /** How each member is made. */
  readonly spec: AnySpec<I, M>;
  /** What each member is made with. */
  readonly init: I;
  /** The number of members. */
  readonly size: number;
  /**
   * Who gets the next message. `round-robin` (default): the members in turn. `smallest-mailbox`: one
   * of those that have been handed the fewest messages which they have not handled, the first of
   * them.
   */
  readonly policy?: "round-robin" | "smallest-mailbox";
}

/** A message for every member; see {@linkcode broadcast}. */
export interface Broadcast<M extends Message> {
  /** Tells it from the messages of the members. */
  readonly type: "~broadcast";
  /** What each member gets. */
  readonly message: M;
}

/** What a pool tells itself. */
type PoolMessage =
  | Broadcast<Message>
  | { readonly type: "~handled"; readonly by: ActorRef }
  | { readonly type: "~down"; readonly down: Down }
  | { readonly type: "~restart"; readonly index: number };

const POOL: ActorSpec<Pool<unknown, never>, PoolMessage> = {
  module: import.meta.url,
  export: "pool",
};

/** Who can make an actor: a system or the context of an actor. */
export interface Spawner {
  /** See {@linkcode Context.spawn}. */
  spawn<I, T extends Message>(
    spec: AnySpec<I, T>,
    init: NoInfer<I>,
    options: SpawnOptions,
  ): ActorRef<T>;
}

/**
 * Makes a pool. What is sent to it goes to one of its members, as if it had been sent there, so a
 * question is answered by that member. A member that ends is replaced, as often as the limits of
 * the pool allow (by default those of a supervisor); then the pool fails with its reason.
 *
 * @example
 * ```ts
 * import { type Ask, broadcast, createSystem, spawnPool } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * type Worker = { type: "Set"; factor: number } | { type: "Scale"; n: number } & Ask<string>;
 * const module = `data:text/javascript,export const worker = (ctx, start) => {
 *   let factor = start;
 *   return {
 *     Set(message) { factor = message.factor; },
 *     Scale({ n }) { ctx.reply(ctx.self.id + ": " + factor * n); },
 *   };
 * }`;
 * await using system = createSystem();
 * const pool = spawnPool<number, Worker>(
 *   system,
 *   { spec: { module, export: "worker" }, init: 1, size: 2 },
 *   { id: "scalers" },
 * );
 * system.send(pool, broadcast({ type: "Set", factor: 10 }));
 * const answers = [1, 2, 3].map((n) => system.ask(pool, { type: "Scale", n }));
 * assert.deepEqual(await Promise.all(answers), [
 *   "scalers-1: 10",
 *   "scalers-2: 20",
 *   "scalers-1: 30",
 * ]);
 * ```
 *
 * @param owner whose child the pool is.
 * @param pool its members.
 * @param options id and place of the pool itself.
 * @throws {RangeError} when the size is not a positive integer, or the policy is none.
 */
export function spawnPool<I, M extends Message>(
  owner: Spawner,
  pool: Pool<I, M>,
  options: SpawnOptions,
): ActorRef<M | Broadcast<M>> {
  const { size, policy = "round-robin" } = pool;
  if (!Number.isSafeInteger(size) || size < 1) {
    throw new RangeError(`Cannot make a pool: size must be a positive integer, received ${size}`);
  }
  if (policy !== "round-robin" && policy !== "smallest-mailbox") {
    throw new RangeError(
      `Cannot make a pool: policy must be round-robin or smallest-mailbox, received ${policy}`,
    );
  }
  return owner.spawn(POOL as ActorSpec<Pool<I, M>, M | Broadcast<M>>, pool, options);
}

/** Makes a message for every member of a pool. Nobody answers it. */
export function broadcast<M extends Message>(message: M): Broadcast<M> {
  return { type: "~broadcast", message };
}

/** A member. */
interface Member {
  readonly index: number;
  ref: ActorRef<Message>;
  /** It lives, as far as the pool knows. */
  isUp: boolean;
  /** Messages that it has been handed and has not handled. */
  waiting: number;
}

/** What a pool is about. */
interface Row {
  readonly ctx: Context<PoolMessage>;
  readonly init: Pool<unknown, Message>;
  readonly limits: RestartLimits;
  readonly count: Restarts;
  readonly members: readonly Member[];
}

/** Makes a pool; see {@linkcode spawnPool}. */
export const pool: ActorFactory<Pool<unknown, Message>, PoolMessage> = (ctx, init) => {
  const { size, policy, intensity = 1, periodMs = 5000, backOff } = init;
  const limits = { intensity, periodMs, backOff };
  const members = Array.from({ length: size }, (_, index): Member => ({
    ...{ index, isUp: true, waiting: 0 },
    ref: spawnMember(ctx, init, index),
  }));
  const row: Row = { ctx, init, limits, count: countRestarts(limits), members };
  ctx.expose(() => members.map(({ isUp, waiting }) => isUp ? waiting : "down"));
  let turn = 0;
  const isBalanced = policy === "smallest-mailbox";
  return {
    [DOOR]: ({ type }: Message, isForeign: boolean) =>
      isForeign && type.startsWith("~") ? `"${type}" must come from the program` : undefined,
    "~broadcast": ({ message }) => {
      for (const { ref, isUp } of members) if (isUp) ctx.send(ref, message);
    },
    "~handled": ({ by }) => {
      const member = memberOf(members, by);
      if (member) member.waiting--;
    },
    "~down": ({ down }) => replace(row, down),
    "~restart": ({ index }) => begin(row, members[index]!),
    [OTHERS]: () => {
      const member = isBalanced ? leastBusy(members) : inTurn(members, turn);
      turn = member.index + 1;
      member.waiting++;
      const to = member.ref as ActorRef as ActorRef<PoolMessage>;
      if (isBalanced) ctx.forward(to, { receipt: { type: "~handled", by: member.ref } });
      else ctx.forward(to);
    },
  };
};

/** The next that is up; where none is, one that is not, so that whoever asks learns of that. */
function inTurn(members: readonly Member[], turn: number): Member {
  const order = [...members.slice(turn), ...members.slice(0, turn)];
  return order.find(({ isUp }) => isUp) ?? order[0]!;
}

function leastBusy(members: readonly Member[]): Member {
  const up = members.filter(({ isUp }) => isUp);
  const least = Math.min(...up.map(({ waiting }) => waiting));
  return up.find(({ waiting }) => waiting === least) ?? members[0]!;
}

function memberOf(members: readonly Member[], ref: ActorRef): Member | undefined {
  return members.find((member) =>
    member.ref.serial === ref.serial && member.ref.isolate === ref.isolate
  );
}

function spawnMember(
  ctx: Context<PoolMessage>,
  pool: Pool<unknown, Message>,
  index: number,
): ActorRef<Message> {
  const id = `${ctx.self.id}-${index + 1}`;
  const ref = ctx.spawn(pool.spec, pool.init, { id, ...placementOf(pool) });
  ctx.watch(ref, (down) => ({ type: "~down", down }));
  return ref;
}

function begin({ ctx, init }: Row, member: Member): void {
  member.ref = spawnMember(ctx, init, member.index);
  member.isUp = true;
  member.waiting = 0;
}

/** A member has ended: another takes its place, now or after a while. */
function replace(row: Row, { ref, reason }: Down): void {
  const { ctx, count, limits: { intensity, periodMs } } = row;
  const member = memberOf(row.members, ref);
  if (!member) return;
  member.isUp = false;
  const waitMs = count.failed(ctx.now());
  // Failures are forgotten by their age alone.
  count.gotOn();
  if (waitMs === undefined) {
    const how = reason === "stopped" ? "it has stopped" : new ActorFailedError(reason).message;
    throw new Error(
      `Cannot replace "${ref.id}": there must be at most ${intensity} restarts in ` +
        `${periodMs} ms; ${how}`,
    );
  }
  if (waitMs === 0) begin(row, member);
  else ctx.after(waitMs, { type: "~restart", index: member.index }, ref.id);
}
