/**
 * A supervisor of any actors: begins again what ends, by the strategies of OTP.
 *
 * @module
 */

import { type Context, placementOf, type Reply } from "../context_api.ts";
import { ActorFailedError, type Down, type Reason } from "../failure.ts";
import { type ActorFactory, DOOR } from "../handlers.ts";
import type { ActorRef, ActorSpec, Ask } from "../types.ts";
import { checkChild, checkSupervision, type ChildSpec } from "./child_spec.ts";
import type { ChildState, Supervision } from "./child_spec.ts";
import { countRestarts, type RestartLimits, type Restarts } from "./restarts.ts";

/** Defaults of OTP. */
const LIMITS: RestartLimits = { intensity: 1, periodMs: 5000 };

/** What a supervisor understands. */
export type SupervisionMessage =
  /** Asks for the reference of a child, as soon as it is up; undefined when there is none. */
  | { readonly type: "Child"; readonly id: string } & Ask<ActorRef | undefined>
  /** Asks how all children fare, in the order in which they are begun. */
  | { readonly type: "Children" } & Ask<readonly ChildState[]>
  /** Begins one more child, after the others; answers as Child does. */
  | { readonly type: "StartChild"; readonly child: ChildSpec } & Ask<ActorRef | undefined>
  /** Stops a child for good. */
  | { readonly type: "StopChild"; readonly id: string }
  /** To itself: a child has ended. */
  | { readonly type: "Down"; readonly down: Down }
  /** To itself: the wait before a restart is over. */
  | { readonly type: "Restart"; readonly row: string };

/**
 * A supervisor, ready to be spawned. It begins its children in order and watches them; what ends is
 * begun again as {@linkcode Supervision.strategy} and {@linkcode ChildSpec.restart} say. When that
 * has to happen too often it fails itself, with the reason of the last end, and its children end
 * with it: its own supervisor knows better, or the run is over.
 *
 * A child that is begun again is another actor, so references to it are asked for with `Child`; the
 * answer comes when it is up.
 *
 * @example
 * ```ts
 * import {
 *   type ActorRef,
 *   type Ask,
 *   CHILD_SUPERVISOR,
 *   childSpec,
 *   createSystem,
 * } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * type Store = { type: "Put" } | { type: "Crash" } | { type: "Count" } & Ask<number>;
 * const module = `data:text/javascript,export const store = (ctx) => {
 *   let count = 0;
 *   return {
 *     Put() { count++; },
 *     Crash() { throw new Error("disk full"); },
 *     Count() { ctx.reply(count); },
 *   };
 * }`;
 * await using system = createSystem();
 * const supervisor = system.spawn(CHILD_SUPERVISOR, {
 *   strategy: "one-for-one",
 *   intensity: 3,
 *   periodMs: 1000,
 *   children: [childSpec<undefined, Store>({
 *     id: "store",
 *     spec: { module, export: "store" },
 *     init: undefined,
 *   })],
 * }, { id: "supervisor" });
 * const store = async () =>
 *   await system.ask(supervisor, { type: "Child", id: "store" }) as ActorRef<Store>;
 *
 * const first = await store();
 * const down = new Promise((resolve) => system.watch(first, resolve));
 * system.send(first, { type: "Put" });
 * system.send(first, { type: "Crash" });
 * await down;
 * const [state] = await system.ask(supervisor, { type: "Children" });
 * assert.equal(state?.restarts, 1);
 * assert.equal(await system.ask(await store(), { type: "Count" }), 0);
 * ```
 */
export const CHILD_SUPERVISOR: ActorSpec<Supervision, SupervisionMessage> = {
  module: import.meta.url,
  export: "childSupervisor",
};

/** A child as its supervisor keeps it. */
interface Child {
  readonly spec: ChildSpec;
  readonly row: Row;
  /** Who asked for its reference while it was not up. */
  readonly awaited: Reply<ActorRef | undefined>[];
  state: ChildState["state"];
  ref?: ActorRef | undefined;
  restarts: number;
  /** It is not to be begun again, whatever becomes of the others. */
  isRemoved: boolean;
}

/** Children that may have to be begun again together: one, or all. */
interface Row {
  readonly name: string;
  readonly children: Child[];
  /** The first that is about to be begun again; those after it are, too. */
  from: number | undefined;
  /** The wait before that goes on. */
  isDelayed: boolean;
}

/** What a supervisor is about. */
interface Nursery {
  readonly ctx: Context<SupervisionMessage>;
  readonly supervision: Supervision;
  readonly limits: RestartLimits;
  readonly count: Restarts;
  /** By id, in the order in which they are begun. */
  readonly children: Map<string, Child>;
}

/** Makes a {@linkcode CHILD_SUPERVISOR}. */
export const childSupervisor: ActorFactory<Supervision, SupervisionMessage> = (
  ctx,
  supervision,
) => {
  checkSupervision(supervision);
  const limits = { ...LIMITS, ...supervision };
  const count = countRestarts(limits);
  const nursery: Nursery = { ctx, supervision, limits, count, children: new Map() };
  for (const spec of supervision.children) begin(nursery, addChild(nursery, spec));
  ctx.expose(() => [...nursery.children.values()].map(fareOf));
  return {
    [DOOR]: ({ type }: SupervisionMessage, isForeign: boolean) =>
      isForeign && !type.startsWith("Child") ? `"${type}" must come from the program` : undefined,
    Child: ({ id }) => tellRef(ctx, nursery.children.get(id)),
    Children: () => ctx.reply([...nursery.children.values()].map(fareOf)),
    StartChild({ child: spec }) {
      if (!nursery.children.has(spec.id)) {
        checkChild(spec, [...nursery.children.keys()]);
        begin(nursery, addChild(nursery, spec));
      }
      tellRef(ctx, nursery.children.get(spec.id));
    },
    StopChild: ({ id }) => removeChild(nursery, nursery.children.get(id)),
    Down: ({ down }) => ended(nursery, down),
    Restart({ row: name }) {
      const child = [...nursery.children.values()].find(({ row }) => row.name === name);
      if (!child) return;
      child.row.isDelayed = false;
      proceedAll(nursery);
    },
  };
};

function fareOf({ spec, state, ref, restarts }: Child): ChildState {
  return { id: spec.id, state, restarts, ...ref && { ref } };
}

function addChild({ supervision, children }: Nursery, spec: ChildSpec): Child {
  const isAlone = (supervision.strategy ?? "one-for-one") === "one-for-one";
  const row = isAlone ? undefined : children.values().next().value?.row;
  const child: Child = {
    spec,
    row: row ?? { name: spec.id, children: [], from: undefined, isDelayed: false },
    awaited: [],
    state: "waiting",
    restarts: 0,
    isRemoved: false,
  };
  child.row.children.push(child);
  children.set(spec.id, child);
  return child;
}

/** Begins a child, the first time or again. */
function begin({ ctx, children }: Nursery, child: Child): void {
  const { spec: { id, spec, init, needs = {} } } = child;
  const refs = Object.entries(needs).map(([name, needed]) => [name, children.get(needed)?.ref]);
  const full = refs.length === 0 ? init : { ...init as object, ...Object.fromEntries(refs) };
  const options = { id, ...placementOf(child.spec) };
  child.ref = ctx.spawn(spec as ActorSpec<unknown>, full, options);
  child.state = "up";
  ctx.watch(child.ref, (down) => ({ type: "Down", down }));
  for (const reply of child.awaited.splice(0)) reply(child.ref);
}

/** Answers with the reference of a child, now or when it is up. */
function tellRef(ctx: Context<SupervisionMessage>, child: Child | undefined): void {
  if (!child || child.state === "ended" || child.isRemoved) ctx.reply(undefined);
  else if (child.state === "up") ctx.reply(child.ref);
  else child.awaited.push(ctx.deferReply());
}

function removeChild(nursery: Nursery, child: Child | undefined): void {
  if (!child) return;
  const { ctx, children } = nursery;
  child.isRemoved = true;
  if (child.state === "up") {
    child.state = "stopping";
    ctx.stop(child.ref);
  } else if (child.state !== "stopping") {
    end(children, child);
    proceedAll(nursery);
  }
}

/** A child is no more. */
function end(children: Map<string, Child>, child: Child): void {
  child.state = "ended";
  for (const reply of child.awaited.splice(0)) reply(undefined);
  if (!child.isRemoved) return;
  children.delete(child.spec.id);
  const { row } = child, index = row.children.indexOf(child);
  row.children.splice(index, 1);
  if (row.from !== undefined && row.from > index) row.from--;
}

/** A child has ended, as it had to or not. */
function ended(nursery: Nursery, { ref, reason }: Down): void {
  const { children } = nursery;
  const child = [...children.values()].find((one) => one.ref && isSame(one.ref, ref));
  if (!child) return;
  const { spec: { restart = "permanent" } } = child;
  const wasStopped = child.state === "stopping";
  child.ref = undefined;
  const isOver = wasStopped
    ? restart === "temporary"
    : restart === "temporary" || restart === "transient" && reason === "stopped";
  if (isOver || child.isRemoved) end(children, child);
  else {
    child.state = "waiting";
    if (!wasStopped) plan(nursery, child, reason);
  }
  proceedAll(nursery);
}

function isSame(one: ActorRef, other: ActorRef): boolean {
  return one.isolate === other.isolate && one.serial === other.serial;
}

/** Says from where on a row is to be begun again, and when. */
function plan({ ctx, count, limits, supervision }: Nursery, child: Child, reason: Reason): void {
  const { row, spec: { id } } = child;
  const waitMs = count.failed(ctx.now());
  // Failures are forgotten by their age alone.
  count.gotOn();
  if (waitMs === undefined) throw tooOften(id, limits, reason);
  const from = supervision.strategy === "one-for-all" ? 0 : row.children.indexOf(child);
  row.from = Math.min(row.from ?? from, from);
  if (waitMs === 0) return;
  row.isDelayed = true;
  ctx.after(waitMs, { type: "Restart", row: row.name }, `restart ${row.name}`);
}

function tooOften(id: string, { intensity, periodMs }: RestartLimits, reason: Reason): Error {
  const how = reason === "stopped" ? `"${id}" has stopped` : new ActorFailedError(reason).message;
  return new Error(
    `Cannot restart "${id}": there must be at most ${intensity} restarts in ${periodMs} ms; ${how}`,
  );
}

/** What has become of one row may be what another waits for. */
function proceedAll(nursery: Nursery): void {
  for (const { row } of [...nursery.children.values()]) proceed(nursery, row);
}

/** Does the next thing towards a row that is up again: one stop at a time, then all begin. */
function proceed(nursery: Nursery, row: Row): void {
  if (row.from === undefined) return;
  const last = row.children.findLast(({ state }, index) =>
    index >= row.from! && (state === "up" || state === "stopping")
  );
  if (last?.state === "up") {
    last.state = "stopping";
    nursery.ctx.stop(last.ref);
  }
  if (last || row.isDelayed) return;
  const again = row.children.slice(row.from).filter(({ state }) => state === "waiting");
  if (again.some((child) => lacks(nursery, child))) return;
  row.from = undefined;
  for (const child of again) {
    child.restarts++;
    begin(nursery, child);
  }
}

/** Whether a child of another row, which this one needs, is not up yet. */
function lacks({ children }: Nursery, { row, spec: { needs = {} } }: Child): boolean {
  return Object.values(needs).some((id) => {
    const needed = children.get(id);
    return needed && needed.row !== row && ["waiting", "stopping"].includes(needed.state);
  });
}
