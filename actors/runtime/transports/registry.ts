/**
 * The root's registry of the other isolates: has each started by the transport of its place, passes
 * on what they send each other, and tells all when one is gone.
 *
 * @module
 */

import { describeFailure, type Reason } from "../failure.ts";
import type { Network } from "../isolate/isolate.ts";
import { starterOf } from "../isolate/spawning.ts";
import type { ObserverSpec } from "../observer.ts";
import { isCloneError, snapshot } from "../snapshot.ts";
import type { SystemEvent } from "../system_api.ts";
import type { Confined, Confinement, Least, Permissions } from "./confinement.ts";
import { isWithin, together } from "./confinement.ts";
import { type Guard, openGuard } from "./guard/guard.ts";
import type { Inward } from "./guard/screen.ts";
import { startGuarded } from "./guarded_isolate.ts";
import type { OpenTransport, RemoteIsolate, Transport } from "./transport.ts";
import { buryFrame, type Undertaker } from "./undeliverable.ts";
import type {
  BootFrame,
  Frame,
  LaunchFrame,
  Place,
  PlaceKind,
  SwitchFrame,
  UpFrame,
} from "./wire.ts";

/** What the registry needs of the root. */
export interface Root
  extends Undertaker, Omit<BootFrame, "kind" | "isolate" | "launch" | "places"> {
  readonly observer: ObserverSpec | undefined;
  deliver(frame: Frame): void;
  /** Tells the owner of the system of something. */
  onEvent(event: SystemEvent): void;
  isolateGone(isolate: number, reason: Reason): void;
}

/** An isolate that lives. */
interface Member {
  /** Id of its first actor. */
  readonly actor: string;
  readonly transport: Transport;
  readonly remote: RemoteIsolate;
  /** Set where its code is not the program's own. */
  readonly guarded: Guarded | undefined;
  /** What it may do, where that is less than the program may. */
  readonly permissions: Permissions | undefined;
  /** How its last actor has ended, once it has said so. */
  reason?: Reason;
  /** Why it was killed. */
  why?: string;
  /** A frame has come since {@linkcode IsolateRegistry.activity} was called last. */
  hasStirred: boolean;
}

/** An isolate that is confined. */
interface Guarded {
  readonly guard: Guard;
  /** Sends it what its guard need not see. */
  readonly tell: (frame: Inward) => void;
}

/** What waits for an isolate whose start is still on its way to the root. It gets none when there
 * never is one. */
type Early = (member: Member | undefined) => void;

/** All isolates but the root, seen from it. */
export class IsolateRegistry implements Network {
  readonly #root: Root;
  readonly #transports: readonly Transport[];
  readonly #open = new Map<Transport, OpenTransport>();
  readonly #members = new Map<number, Member>();
  readonly #gone = new Map<number, Reason>();
  readonly #early = new Map<number, Early[]>();
  /** Isolates of which something is left, and what must be over before the system is. */
  readonly #pending = new Map<RemoteIsolate, Promise<unknown>>();
  #activity = 0;

  /**
   * @param root the isolate that owns the others.
   * @param transports those that actors can be put in by name.
   */
  constructor(root: Root, transports: readonly Transport[]) {
    this.#root = root;
    this.#transports = transports;
  }

  start(number: number, launch: LaunchFrame, transfer: readonly ArrayBuffer[]): void {
    const { isolate: name, memoryLimitMb, confinement, permissions } = launch.place;
    const transport = this.#transports.find((one) => one.name === name)!;
    if (confinement && !transport.confines) {
      throw new TypeError(
        `Cannot spawn "${launch.ref.id}": a ${name} cannot confine the actor of a package; its isolate must be one that can, or its permissions "inherit"`,
      );
    }
    const { system, seed, stopGraceMs, observer } = this.#root;
    const places = this.#transports.map(placeKindOf);
    const root = { system, seed, stopGraceMs, observer, places };
    const whole: BootFrame = { kind: "boot", isolate: number, ...root, launch };
    const refused = (on: string) =>
      this.#root.onEvent({ type: "denied", actor: launch.ref.id, what: "message", on });
    const guard = confinement && openGuard(whole, refused), boot = guard?.boot ?? whole;
    const isolate = startGuarded(this.#opened(transport), {
      isolate: number,
      memoryLimitMb,
      confinement: confinement && this.#confined(launch.ref.id, confinement),
      least: permissions && leastOf(launch, permissions, observer),
      boot,
      transfer,
      receive: guard
        ? (frame) => this.#judge(number, transport, frame)
        : (frame) => this.#receive(number, transport, frame as UpFrame | Frame),
    }, 2 * stopGraceMs);
    const remote = guard ? screened(isolate, guard) : isolate;
    const guarded = guard && { guard, tell: (frame: Inward) => isolate.send(frame, []) };
    const actor = launch.ref.id, hasStirred = false;
    const member = { actor, transport, remote, guarded, permissions, hasStirred };
    this.#members.set(number, member);
    this.#await(remote, remote.gone.then((cause) => this.#lose(number, member, cause)));
    for (const greet of this.#early.get(number) ?? []) greet(member);
    this.#early.delete(number);
  }

  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const member = this.#members.get(to);
    if (member) return member.remote.send(frame, transfer);
    if (this.#gone.has(to)) return;
    const copy = snapshot(frame, transfer);
    this.#whenThere(to, (member) => member ? member.remote.send(copy, []) : this.#bury(copy));
  }

  drain(): Promise<void> | undefined {
    let wait: Promise<unknown> | undefined;
    for (const transport of this.#open.values()) {
      const drained = transport.drain?.();
      if (drained) wait = wait ? Promise.all([wait, drained]) : drained;
    }
    return wait as Promise<void> | undefined;
  }

  kill(number: number, why: string): void {
    const member = this.#members.get(number);
    if (!member) return;
    // Only the first reason counts.
    member.why ??= why;
    member.remote.kill();
  }

  /** Grows while any isolate is at work, or has been since this was called last. */
  activity(): number {
    for (const member of this.#members.values()) {
      if (member.remote.stirs?.() ?? member.hasStirred) this.#activity++;
      member.hasStirred = false;
    }
    return this.#activity;
  }

  /** Ends every isolate that still lives, and waits until they have ended or the grace is over. */
  async close(): Promise<void> {
    for (const number of this.#members.keys()) this.kill(number, "the system has stopped");
    // A worker in an endless loop cannot be ended: its thread is left behind.
    const timer = setTimeout(() => {
      for (const remote of this.#pending.keys()) remote.abandon?.();
    }, this.#root.stopGraceMs);
    while (this.#pending.size > 0) await Promise.all(this.#pending.values());
    clearTimeout(timer);
    for (const number of [...this.#early.keys()]) this.#giveUpOn(number);
  }

  #confined(actor: string, confinement: Confinement): Confined {
    const denied = (what: string, on: string) =>
      this.#root.onEvent({ type: "denied", actor, what, on });
    const moved = (to: string, why: string) =>
      this.#root.onEvent({ type: "moved", actor, to, why });
    return { ...confinement, actor, denied, moved };
  }

  #opened(transport: Transport): OpenTransport {
    const open = this.#open.get(transport) ??
      transport.open({ stopGraceMs: this.#root.stopGraceMs });
    this.#open.set(transport, open);
    return open;
  }

  /** What isolate `number` tells the root, and what of that its guard lets pass. */
  #judge(number: number, transport: Transport, frame: unknown): void {
    const member = this.#members.get(number);
    // Who has ended, or must, says nothing more.
    if (!member?.guarded || member.why !== undefined) return;
    member.hasStirred = true;
    const { guard, tell } = member.guarded;
    const { up, post, back, denied, forged, transfer } = guard.judge(frame);
    if (forged !== undefined) return this.kill(number, forged);
    if (denied) {
      const { what, on, letter } = denied;
      if (letter) this.#root.onDeadLetter(letter);
      this.#root.onEvent({ type: "denied", actor: member.actor, what, on });
    }
    if (up) this.#receive(number, transport, up);
    if (back) tell(back);
    if (post?.to === 0) this.#root.deliver(post.frame);
    else if (post) this.#forward(number, { kind: "forward", ...post, transfer });
  }

  /** What isolate `number` tells the root. */
  #receive(number: number, transport: Transport, frame: UpFrame | Frame): void {
    const member = this.#members.get(number);
    if (member) member.hasStirred = true;
    switch (frame.kind) {
      case "invite":
        return this.#invite(number, transport, frame);
      case "forward":
        return this.#forward(number, frame);
      case "start":
        return this.#startFor(frame, member?.permissions);
      case "done":
        return this.#release(number, frame.reason);
      case "kill":
        return this.kill(frame.isolate, frame.why);
      case "dead-letter":
        return this.#root.onDeadLetter(frame.letter, frame.message);
      case "started":
        return this.#hasTold(number, frame.about);
      default:
        return this.#root.deliver(frame);
    }
  }

  /** The last actor of an isolate has ended: what is sent there from now on is lost. */
  #release(number: number, reason: Reason): void {
    const member = this.#members.get(number);
    if (!member) return;
    member.reason = reason;
    this.#members.delete(number);
    this.#gone.set(number, reason);
    member.remote.close();
  }

  /** Nothing comes from an isolate any more. */
  #lose(number: number, member: Member, cause: string): void {
    const { actor, transport: { name }, remote } = member;
    const hasBegun = remote.hasBegun?.() ?? true;
    const what = hasBegun ? "has ended" : "could not begin";
    const error = new Error(`the ${name} of "${actor}" ${what}: ${member.why ?? cause}`);
    const kind = hasBegun ? "exit" : "init";
    const reason = member.reason ?? describeFailure(actor, kind, error);
    this.#members.delete(number);
    this.#gone.set(number, reason);
    this.#tell(number, reason);
    // It can no longer say whether it has started them.
    for (const about of [...this.#early.keys()]) this.#askFor(about);
  }

  #tell(number: number, reason: Reason): void {
    for (const other of this.#members.keys()) this.#tellOne(other, number, reason);
    this.#root.isolateGone(number, reason);
  }

  #tellOne(to: number, isolate: number, reason: Reason): void {
    this.#members.get(to)?.remote.send({ kind: "isolate-gone", isolate, reason }, []);
  }

  /** Starts an isolate for one that may do no more than `most`. */
  #startFor(
    { isolate, launch, transfer }: Extract<UpFrame, { kind: "start" }>,
    most: Permissions | undefined,
  ): void {
    try {
      const place = most ? this.#placeWithin(launch, most) : launch.place;
      this.start(isolate, { ...launch, place }, transfer);
    } catch (error) {
      const reason = describeFailure(launch.ref.id, "exit", error);
      this.#gone.set(isolate, reason);
      this.#tell(isolate, reason);
    }
  }

  /** Where an actor goes whose parent may do no more than `most`, and so must not give more. */
  #placeWithin({ ref, place }: LaunchFrame, most: Permissions): Place {
    const cannot = `Cannot spawn "${ref.id}": it must be granted no more than its parent`;
    const { isolate: name, confinement, permissions = confinement?.permissions ?? most } = place;
    if (!isWithin(permissions, most)) throw new Deno.errors.NotCapable(cannot);
    if (confinement) return place;
    if (this.#transports.find((one) => one.name === name)?.limitsPermissions) {
      return { ...place, permissions };
    }
    throw new Deno.errors.NotCapable(`${cannot}, which a ${name} cannot limit`);
  }

  /** Passes a frame on. */
  #forward(from: number, { to, frame, transfer }: Extract<UpFrame, { kind: "forward" }>): void {
    const gone = this.#gone.get(to);
    // Who comes too late has not been told yet.
    if (gone) return this.#tellOne(from, to, gone);
    this.#whenThere(to, (member) => {
      try {
        if (member) member.remote.send(frame, transfer);
        else this.#bury(frame);
      } catch (error) {
        // Not every transport carries all that another does.
        if (!isCloneError(error)) throw error;
        this.#bury(frame, error.message);
      }
    });
  }

  /** Has isolate `to` connect to `from`, where the two can reach each other. */
  #invite(
    from: number,
    transport: Transport,
    { to, address, transfer }: Extract<UpFrame, { kind: "invite" }>,
  ): void {
    const greet = (member?: Member) => {
      // One that is confined gets no address of a socket.
      const isPeer = member?.transport === transport && !member.guarded;
      if (!isPeer) this.#open.get(transport)!.decline?.(address);
      else member.remote.send({ kind: "accept", from, address }, transfer);
    };
    if (this.#gone.has(to)) greet();
    else this.#whenThere(to, greet);
  }

  #whenThere(number: number, greet: Early): void {
    const member = this.#members.get(number), early = this.#early.get(number);
    if (member) return greet(member);
    if (early) return void early.push(greet);
    this.#early.set(number, [greet]);
    this.#askFor(number);
  }

  /**
   * Has the isolate that must have started `about`, or started the one that has, say so.
   *
   * [Note: isolates that never were] An address exists only after the start of its isolate was sent
   * to the root. So when the starter has been asked after a message came, and answers, then either
   * the start has come before the answer, or the address was made up.
   */
  #askFor(about: number): void {
    const starter = this.#starterOf(about), isGuarded = this.#members.get(starter)?.guarded;
    // Who is confined starts none.
    if (starter && !isGuarded) {
      this.#members.get(starter)!.remote.send({ kind: "has-started", about }, []);
    } else this.#giveUpOn(about);
  }

  /** The nearest living isolate among the starters of this one; 0, the root, knows what it started. */
  #starterOf(about: number): number {
    let starter = starterOf(about);
    while (starter > 0 && !this.#members.has(starter)) starter = starterOf(starter);
    return starter;
  }

  #hasTold(number: number, about: number): void {
    if (!this.#early.has(about)) return;
    if (this.#starterOf(about) === number) this.#giveUpOn(about);
    else this.#askFor(about);
  }

  #giveUpOn(number: number): void {
    const early = this.#early.get(number) ?? [];
    this.#early.delete(number);
    for (const greet of early) greet(undefined);
  }

  #bury(frame: Frame | SwitchFrame, why?: string): void {
    const credit = frame.kind === "message" ? frame.credit : undefined;
    if (credit) this.#members.get(credit.isolate)?.remote.send({ kind: "credit", credit }, []);
    const answer = buryFrame(this.#root, frame, why);
    if (!answer) return;
    if (answer.to === 0) this.#root.deliver(answer.frame);
    else this.#members.get(answer.to)?.remote.send(answer.frame, []);
  }

  #await(remote: RemoteIsolate, told: Promise<void>): void {
    const settled = Promise.allSettled([told, remote.ended]).finally(() =>
      this.#pending.delete(remote)
    );
    this.#pending.set(remote, settled);
  }
}

/** A confined isolate, which gets what its guard lets it see. */
function screened(remote: RemoteIsolate, guard: Guard): RemoteIsolate {
  return {
    ...remote,
    send(frame, transfer) {
      for (const shown of guard.screen(frame as Inward)) remote.send(shown, transfer);
    },
  };
}

/** What actors may know of a transport. */
function placeKindOf(
  { name, limitsMemory, confines = false }: Transport,
): PlaceKind {
  return { name, limitsMemory, confines };
}

/** What an actor of the program may do, and what observes it must. */
function leastOf(
  { ref, spec }: LaunchFrame,
  permissions: Permissions,
  observer: ObserverSpec | undefined,
): Least {
  const modules = [spec.module, ...observer ? [observer.module] : []];
  const all = observer?.permissions ? together(permissions, observer.permissions) : permissions;
  return { actor: ref.id, permissions: all, modules };
}
