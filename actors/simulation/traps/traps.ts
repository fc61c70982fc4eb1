/**
 * Traps: while a simulation runs, what is not a function of an actor's state and messages throws.
 *
 * [Note: traps] They sit on the global objects and look whether an actor is at work: the code of
 * the test, the runtime and what is exempt go through to the real thing. An actor that
 * took a copy of a function before (`const { now } = Date`) gets past them; the lint plugin sees
 * that.
 *
 * @module
 */

import { beginGuard, type DeterminismError, guard, setActorAtWork } from "./guard.ts";
import { TIMER, TRAPPED, type Trapped } from "./trapped.ts";

/** Where a trap sits. */
interface Place {
  readonly trapped: Trapped;
  readonly holder: object;
  readonly name: PropertyKey;
  /** The trap of the run before, and what was there before it. */
  set?: { readonly before: PropertyDescriptor | undefined; readonly by: PropertyDescriptor };
}

/** Finds the object that holds a token, and the name by which it does. */
function placeOf(trapped: Trapped): Place[] {
  const path = trapped.token.split("."), name = path.pop()!;
  let holder: unknown = globalThis;
  for (const part of trapped.holder?.split(".") ?? path) {
    holder = (holder as Record<string, unknown> | undefined)?.[part];
  }
  if (holder === undefined || !(name in (holder as object))) return [];
  return [{ trapped, holder: holder as object, name }];
}

/** A property as it was, wherever on the way to the root of all prototypes it is. */
function describe(holder: object, name: PropertyKey): PropertyDescriptor | undefined {
  for (let object: object | null = holder; object; object = Object.getPrototypeOf(object)) {
    const found = Object.getOwnPropertyDescriptor(object, name);
    if (found) return found;
  }
}

type Callable = (...args: unknown[]) => unknown;

/** A function or class that looks who calls. It is a proxy, so that what hangs on it stays there. */
function trap(trapped: Trapped, real: unknown): unknown {
  const { kind } = trapped, isHarmless = kind === "date" || kind === "format";
  return new Proxy(real as Callable, {
    construct(target, args, newTarget) {
      if (!isHarmless || args.length === 0) guard(trapped);
      return Reflect.construct(target, args, newTarget);
    },
    apply(target, self, args) {
      if (kind !== "format" || args[0] === undefined) guard(trapped);
      return Reflect.apply(target, self, args);
    },
  });
}

/** The property that takes the place of a trapped one. */
function trapProperty({ trapped, holder, name }: Omit<Place, "set">): PropertyDescriptor {
  const before = describe(holder, name)!;
  const { get = () => before.value as unknown, set } = before;
  const isRead = trapped.kind === "get";
  if (!isRead && !before.get) {
    return { value: trap(trapped, before.value), configurable: true, writable: true };
  }
  // Some are made when they are first asked for, and that may be slow; some for each object anew.
  const look = function (this: unknown) {
    if (!isRead) return trap(trapped, get.call(this));
    guard(trapped);
    return get.call(this);
  };
  return { get: look, ...set && { set }, configurable: true };
}

/** A member of `Deno` itself. */
const DENO_MEMBER = /^Deno\.\w+$/;

/** `Deno` with traps: they are many, so they are set once, and all of it takes the place of `Deno`
 * while a simulation runs. */
function denoWithTraps(): object {
  const real = Deno as unknown as Record<string, unknown>, traps = Object.create(real);
  for (const trapped of TRAPPED) {
    const name = trapped.token.slice("Deno.".length);
    if (!DENO_MEMBER.test(trapped.token) || !(name in real)) continue;
    Object.defineProperty(traps, name, trapProperty({ trapped, holder: real, name }));
  }
  return traps;
}

/** Timers of `node:timers`, which programs import by their names, so that the traps have to sit
 * where timers are made. */
function nodeTimers(): Place[] {
  const timeout = setTimeout(() => {}) as unknown, immediate = setImmediate(() => {}) as unknown;
  clearTimeout(timeout as number);
  clearImmediate(immediate as Parameters<typeof clearImmediate>[0]);
  const wanted: [unknown, (name: PropertyKey) => boolean, string][] = [
    [timeout, (name) => (name as symbol).description === "createTimer", "setTimeout"],
    [immediate, (name) => name === "ref", "setImmediate"],
  ];
  return wanted.flatMap(([timer, isIt, token]): Place[] => {
    const holder = Object.getPrototypeOf(timer), name = Reflect.ownKeys(holder).find(isIt);
    if (name === undefined) return [];
    const trapped: Trapped = { token: `node:timers.${token}`, instead: TIMER, kind: "call" };
    return [{ trapped, holder, name }];
  });
}

/** The traps on members of `Deno`, and where the others sit: found when a simulation first runs. */
let known: { readonly deno: object; readonly places: readonly Place[] } | undefined;

function knownTraps(): NonNullable<typeof known> {
  const others = () => TRAPPED.filter(({ token }) => !DENO_MEMBER.test(token)).flatMap(placeOf);
  return known ??= { deno: denoWithTraps(), places: [...nodeTimers(), ...others()] };
}

/** Sets a trap; returns what takes it away again. */
function set(place: Place): () => void {
  const { holder, name } = place, before = Object.getOwnPropertyDescriptor(holder, name);
  // In nearly every run it is what it was in the run before.
  const isKnown = place.set && place.set.before?.value === before?.value &&
    place.set.before?.get === before?.get;
  if (!isKnown) place.set = { before, by: trapProperty(place) };
  Object.defineProperty(holder, name, place.set!.by);
  return () => {
    if (before) Object.defineProperty(holder, name, before);
    else Reflect.deleteProperty(holder, name);
  };
}

/** Takes the traps away again. */
let remove: (() => void) | undefined;

/**
 * Sets the traps.
 *
 * @param modules URLs, or parts of URLs, of modules that may do everything.
 * @param report told of every violation, as an actor may catch the error.
 * @returns takes them away again.
 * @throws {TypeError} when they are set already.
 */
export function setTraps(
  modules: readonly string[],
  report: (error: DeterminismError) => void,
): () => void {
  if (remove) throw new TypeError("Cannot simulate: simulations must come one after the other");
  const { deno: value, places } = knownTraps(), restores = places.map(set);
  const deno = Object.getOwnPropertyDescriptor(globalThis, "Deno")!;
  Object.defineProperty(globalThis, "Deno", { value, configurable: true });
  restores.push(() => void Object.defineProperty(globalThis, "Deno", deno));
  beginGuard(modules, report);
  remove = () => {
    for (const restore of restores.reverse()) restore();
    setActorAtWork(undefined);
    remove = undefined;
  };
  return remove;
}
