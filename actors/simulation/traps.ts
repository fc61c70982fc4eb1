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

/** A global that is trapped: where it is, and what to use instead. */
export interface Trapped {
  /** As it is written in a program: `Date.now`. */
  readonly token: string;
  /** What an actor should do. */
  readonly instead: string;
  /**
   * `call`: a function. `new`: a class. `date`: a class that is harmless with arguments. `format`: a
   * method that is harmless with an argument. `get`: a property that is read.
   */
  readonly kind: "call" | "new" | "date" | "format" | "get";
  /** Where it is, if it is not where its token says: `Event.prototype`. */
  readonly holder?: string;
}

const CLOCK = "use ctx.now()";
const CHANCE = "use ctx.random(label)";
/** What to do instead of starting a timer. */
const TIMER = "use ctx.after()";
const SELF = "send a message to ctx.self";
const OUTSIDE = "let what is outside send it messages";
const COLLECTOR = "nobody knows when garbage is collected";
const MACHINE = "let what spawns it say what it must know of the machine";

/** Globals, or members of what `of` names. */
function all(kind: Trapped["kind"], instead: string, names: string, of = ""): Trapped[] {
  return names.split(" ").map((name) => ({ token: of + name, instead, kind }));
}

/** Members of objects that a class makes: the traps sit on its prototype. */
function made(kind: Trapped["kind"], instead: string, by: string, names: string): Trapped[] {
  const holder = `${by}.prototype`;
  return all(kind, instead, names, `${by}.`).map((trapped) => ({ ...trapped, holder }));
}

/** Functions of `Deno`. */
const deno = (instead: string, names: string) => all("call", instead, names, "Deno.");

/** Functions of `Deno` that have a twin for synchronous use. */
const denoTwins = (names: string) =>
  deno(OUTSIDE, names.split(" ").flatMap((name) => [name, `${name}Sync`]).join(" "));

/** All that is trapped. The lint plugin reports the same. */
export const TRAPPED: readonly Trapped[] = [
  ...all("date", CLOCK, "Date"),
  ...all("call", CLOCK, "Date.now performance.now performance.mark performance.measure"),
  ...all("call", CLOCK, "performance.toJSON process.hrtime process.hrtime.bigint process.uptime"),
  ...all("call", CLOCK, "Temporal.Now.instant Temporal.Now.plainDateISO Temporal.Now.timeZoneId"),
  ...all("call", CLOCK, "Temporal.Now.plainDateTimeISO Temporal.Now.plainTimeISO"),
  ...all("call", CLOCK, "Temporal.Now.zonedDateTimeISO"),
  ...all("get", CLOCK, "performance.timeOrigin"),
  ...all("new", CLOCK, "PerformanceMark"),
  ...made("get", CLOCK, "Event", "timeStamp"),
  ...made("format", CLOCK, "Intl.DateTimeFormat", "format formatToParts"),
  ...all("call", CHANCE, "Math.random crypto.getRandomValues crypto.randomUUID"),
  ...all("call", CHANCE, "crypto.subtle.generateKey"),
  ...all("call", TIMER, "setTimeout setInterval setImmediate AbortSignal.timeout"),
  ...all("call", SELF, "queueMicrotask process.nextTick"),
  ...all("call", OUTSIDE, "fetch Atomics.wait Atomics.waitAsync caches.open alert confirm prompt"),
  ...all("new", OUTSIDE, "Worker WebSocket EventSource BroadcastChannel MessageChannel"),
  ...all("new", OUTSIDE, "PerformanceObserver Deno.Command"),
  ...all("get", OUTSIDE, "localStorage sessionStorage"),
  ...all("new", COLLECTOR, "WeakRef FinalizationRegistry"),
  ...all("call", MACHINE, "process.memoryUsage process.cpuUsage process.resourceUsage"),
  ...all("get", MACHINE, "navigator.hardwareConcurrency Deno.pid Deno.ppid"),
  ...all("call", MACHINE, "Deno.env.get Deno.env.has Deno.env.toObject"),
  ...deno(MACHINE, "memoryUsage cpuUsage systemMemoryInfo loadavg osUptime osRelease hostname"),
  ...deno(MACHINE, "networkInterfaces consoleSize cwd chdir execPath umask"),
  ...deno(OUTSIDE, "connect connectTls startTls listen listenTls serve upgradeWebSocket"),
  ...deno(OUTSIDE, "resolveDns createHttpClient watchFs spawn spawnAndWait spawnAndWaitSync kill"),
  ...deno(OUTSIDE, "addSignalListener dlopen"),
  ...denoTwins("open create readFile readTextFile writeFile writeTextFile readDir"),
  ...denoTwins("readLink realPath stat lstat mkdir makeTempDir makeTempFile remove rename"),
  ...denoTwins("copyFile link symlink truncate chmod chown utime"),
  ...all("call", OUTSIDE, "Deno.stdin.read Deno.stdin.readSync"),
  // A file that was opened while the module was loaded.
  ...made("call", OUTSIDE, "Deno.FsFile", "read readSync write writeSync"),
  ...made("get", OUTSIDE, "Deno.FsFile", "readable writable"),
];

/** What of a module of Node.js is trapped. */
export interface TrappedModule {
  /** What an actor should do. */
  readonly instead: string;
  /** Names of its exports. Default: all. */
  readonly names?: readonly string[];
}

function modules(instead: string, names: string): [string, TrappedModule][] {
  return names.split(" ").map((name) => [`node:${name}`, { instead }]);
}

const CRYPTO = [
  ...["randomBytes", "randomFill", "randomFillSync", "randomInt", "randomUUID"],
  ...["generateKey", "generateKeySync", "generateKeyPair", "generateKeyPairSync"],
  ...["generatePrime", "generatePrimeSync", "getRandomValues"],
];

/** Modules of Node.js that are clocks, chance, timers or the outside. The lint plugin reports who
 * imports them. */
export const TRAPPED_MODULES: ReadonlyMap<string, TrappedModule> = new Map([
  ...modules(TIMER, "timers timers/promises"),
  ...modules(OUTSIDE, "fs fs/promises net tls dgram dns dns/promises http http2 https"),
  ...modules(OUTSIDE, "child_process cluster worker_threads readline readline/promises sqlite"),
  ...modules(MACHINE, "os"),
  ["node:process", { instead: MACHINE, names: ["hrtime", "nextTick", "uptime", "memoryUsage"] }],
  ["node:perf_hooks", { instead: CLOCK }],
  ["node:crypto", { instead: CHANCE, names: CRYPTO }],
]);

/**
 * An actor has used what makes a run differ from the next.
 *
 * @example
 * ```ts
 * import { DeterminismError } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * const error = new DeterminismError("stage-1", "Date.now", "use ctx.now()");
 * assert.equal(
 *   error.message,
 *   'Cannot call Date.now: actor "stage-1" must do the same in every run; use ctx.now()',
 * );
 * ```
 */
export class DeterminismError extends Error {
  /** Tells it from other errors, also where the class is another. */
  override readonly name = "DeterminismError";
  /**
   * Names the actor, the token and the way out.
   *
   * @param actor id of the actor.
   * @param token what it used, as it is written: `Date.now`.
   * @param instead what it should do.
   */
  constructor(readonly actor: string, readonly token: string, instead: string) {
    super(`Cannot call ${token}: actor "${actor}" must do the same in every run; ${instead}`);
  }
}

/** Who is guarded, and from what. */
const guarded = {
  /** Id of the actor at work. */
  actor: undefined as string | undefined,
  /** Exempt calls under way. */
  exemptions: 0,
  /** URLs, or parts of them, of modules that may do everything. */
  trusted: [] as readonly string[],
  report: (_error: DeterminismError): void => {},
};

/**
 * A simulation begins: nobody is at work, and nobody exempt.
 *
 * @param trusted URLs, or parts of URLs, of modules that may do everything.
 * @param report told of every violation, as an actor may catch the error.
 */
function beginGuard(
  trusted: readonly string[],
  report: (error: DeterminismError) => void,
): void {
  Object.assign(guarded, { trusted, report, exemptions: 0 });
}

/** Says who is at work, or that nobody is. */
export function setActorAtWork(id: string | undefined): void {
  guarded.actor = id;
}

/** Whether an actor is at work; if not, it is the scenario's own code. */
export function isActorAtWork(): boolean {
  return guarded.actor !== undefined;
}

/**
 * Lets a function do what actors must not: it is part of the machine, not of the actor. A device
 * may look at the clock. When it returns a promise, the exemption lasts until that settles.
 *
 * @param call what to do.
 * @returns what it returns.
 *
 * @example
 * ```ts
 * import { exempt } from "@troupe/troupe/testing";
 * import assert from "node:assert/strict";
 *
 * assert.equal(typeof exempt(() => performance.now()), "number");
 * ```
 */
export function exempt<T>(call: () => T): T {
  const end = () => void (guarded.exemptions = Math.max(0, guarded.exemptions - 1));
  guarded.exemptions++;
  let result: T | undefined;
  try {
    result = call();
    return result instanceof Promise ? result.finally(end) as T : result;
  } finally {
    if (!(result instanceof Promise)) end();
  }
}

/** Deepest stack that is searched for trusted modules. */
const MAX_FRAMES = 200;

/** Whether a module that is trusted is among those who called. */
function isTrusted(): boolean {
  const { trusted } = guarded;
  if (trusted.length === 0) return false;
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = MAX_FRAMES;
  const stack = new Error().stack ?? "";
  Error.stackTraceLimit = before;
  return trusted.some((url) => stack.includes(url));
}

/**
 * Somebody uses what is trapped.
 *
 * @throws {DeterminismError} when it is an actor, and nobody has exempted it.
 */
export function guard({ token, instead }: Trapped): void {
  const { actor, exemptions, report } = guarded;
  if (actor === undefined || exemptions > 0 || isTrusted()) return;
  const error = new DeterminismError(actor, token, instead);
  report(error);
  throw error;
}

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
