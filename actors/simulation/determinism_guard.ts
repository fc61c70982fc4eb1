/**
 * The determinism guard: during a simulation, globals whose results are not a function of an actor's
 * state and messages throw when an actor uses them.
 *
 * [Note: the guard] Proxies replace the global functions and check whether an actor runs: the code of
 * the test, the runtime and exempt calls reach the original. An actor with an earlier copy of a
 * function (`const { now } = Date`) is not detected here, but the lint plugin reports the copy.
 *
 * @module
 */

/** A forbidden global. */
export interface ForbiddenGlobal {
  /** Its name in a program: `Date.now`. */
  readonly token: string;
  /** The alternative for actors. */
  readonly instead: string;
  /**
   * `call`: a function. `new`: a class. `date`: a class that is allowed with arguments. `format`: a
   * method that is allowed with an argument. `get`: a property.
   */
  readonly kind: "call" | "new" | "date" | "format" | "get";
  /** The object that has the property, if the token names another one: `Event.prototype`. */
  readonly holder?: string;
}

const CLOCK = "use ctx.now()";
const CHANCE = "use ctx.random(label)";
const TIMER = "use ctx.after()";
const SELF = "send a message to ctx.self";
const EXTERNAL = "let external code send it messages";
const COLLECTOR = "the time of garbage collection is unknown";
const MACHINE = "pass facts about the machine to it when it is spawned";

/** Globals, or members of `of`. */
function all(
  kind: ForbiddenGlobal["kind"],
  instead: string,
  names: string,
  of = "",
): ForbiddenGlobal[] {
  return names.split(" ").map((name) => ({ token: of + name, instead, kind }));
}

/** Members of a class's prototype. */
function members(
  kind: ForbiddenGlobal["kind"],
  instead: string,
  by: string,
  names: string,
): ForbiddenGlobal[] {
  const holder = `${by}.prototype`;
  return all(kind, instead, names, `${by}.`).map((forbidden) => ({ ...forbidden, holder }));
}

/** Functions of `Deno`. */
const deno = (instead: string, names: string) => all("call", instead, names, "Deno.");

/** Functions of `Deno` that also have a synchronous version. */
const denoTwins = (names: string) =>
  deno(EXTERNAL, names.split(" ").flatMap((name) => [name, `${name}Sync`]).join(" "));

/** All forbidden globals. The lint plugin reports the same. */
export const FORBIDDEN_GLOBALS: readonly ForbiddenGlobal[] = [
  ...all("date", CLOCK, "Date"),
  ...all("call", CLOCK, "Date.now performance.now performance.mark performance.measure"),
  ...all("call", CLOCK, "performance.toJSON process.hrtime process.hrtime.bigint process.uptime"),
  ...all("call", CLOCK, "Temporal.Now.instant Temporal.Now.plainDateISO Temporal.Now.timeZoneId"),
  ...all("call", CLOCK, "Temporal.Now.plainDateTimeISO Temporal.Now.plainTimeISO"),
  ...all("call", CLOCK, "Temporal.Now.zonedDateTimeISO"),
  ...all("get", CLOCK, "performance.timeOrigin"),
  ...all("new", CLOCK, "PerformanceMark"),
  ...members("get", CLOCK, "Event", "timeStamp"),
  ...members("format", CLOCK, "Intl.DateTimeFormat", "format formatToParts"),
  ...all("call", CHANCE, "Math.random crypto.getRandomValues crypto.randomUUID"),
  ...all("call", CHANCE, "crypto.subtle.generateKey"),
  ...all("call", TIMER, "setTimeout setInterval setImmediate AbortSignal.timeout"),
  ...all("call", SELF, "queueMicrotask process.nextTick"),
  ...all("call", EXTERNAL, "fetch Atomics.wait Atomics.waitAsync caches.open alert confirm prompt"),
  ...all("new", EXTERNAL, "Worker WebSocket EventSource BroadcastChannel MessageChannel"),
  ...all("new", EXTERNAL, "PerformanceObserver Deno.Command"),
  ...all("get", EXTERNAL, "localStorage sessionStorage"),
  ...all("new", COLLECTOR, "WeakRef FinalizationRegistry"),
  ...all("call", MACHINE, "process.memoryUsage process.cpuUsage process.resourceUsage"),
  ...all("get", MACHINE, "navigator.hardwareConcurrency Deno.pid Deno.ppid"),
  ...all("call", MACHINE, "Deno.env.get Deno.env.has Deno.env.toObject"),
  ...deno(MACHINE, "memoryUsage cpuUsage systemMemoryInfo loadavg osUptime osRelease hostname"),
  ...deno(MACHINE, "networkInterfaces consoleSize cwd chdir execPath umask"),
  ...deno(EXTERNAL, "connect connectTls startTls listen listenTls serve upgradeWebSocket"),
  ...deno(EXTERNAL, "resolveDns createHttpClient watchFs spawn spawnAndWait spawnAndWaitSync kill"),
  ...deno(EXTERNAL, "addSignalListener dlopen"),
  ...denoTwins("open create readFile readTextFile writeFile writeTextFile readDir"),
  ...denoTwins("readLink realPath stat lstat mkdir makeTempDir makeTempFile remove rename"),
  ...denoTwins("copyFile link symlink truncate chmod chown utime"),
  ...all("call", EXTERNAL, "Deno.stdin.read Deno.stdin.readSync"),
  // A file that was opened while the module was loaded.
  ...members("call", EXTERNAL, "Deno.FsFile", "read readSync write writeSync"),
  ...members("get", EXTERNAL, "Deno.FsFile", "readable writable"),
];

/** A module of Node.js with forbidden exports. */
export interface ForbiddenModule {
  /** The alternative for actors. */
  readonly instead: string;
  /** Names of forbidden exports. Default: all. */
  readonly names?: readonly string[];
}

function modules(instead: string, names: string): [string, ForbiddenModule][] {
  return names.split(" ").map((name) => [`node:${name}`, { instead }]);
}

const CRYPTO = [
  ...["randomBytes", "randomFill", "randomFillSync", "randomInt", "randomUUID"],
  ...["generateKey", "generateKeySync", "generateKeyPair", "generateKeyPairSync"],
  ...["generatePrime", "generatePrimeSync", "getRandomValues"],
];

/** Modules of Node.js for clocks, random numbers, timers and external access. The lint plugin reports
 * their imports. */
export const FORBIDDEN_MODULES: ReadonlyMap<string, ForbiddenModule> = new Map([
  ...modules(TIMER, "timers timers/promises"),
  ...modules(EXTERNAL, "fs fs/promises net tls dgram dns dns/promises http http2 https"),
  ...modules(EXTERNAL, "child_process cluster worker_threads readline readline/promises sqlite"),
  ...modules(MACHINE, "os"),
  ["node:process", { instead: MACHINE, names: ["hrtime", "nextTick", "uptime", "memoryUsage"] }],
  ["node:perf_hooks", { instead: CLOCK }],
  ["node:crypto", { instead: CHANCE, names: CRYPTO }],
]);

/**
 * Thrown when an actor uses a forbidden global.
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
  /** The name of the class, for code that cannot use `instanceof`. */
  override readonly name = "DeterminismError";
  /**
   * Creates the error.
   *
   * @param actor id of the actor.
   * @param token the forbidden global: `Date.now`.
   * @param instead the alternative.
   */
  constructor(readonly actor: string, readonly token: string, instead: string) {
    super(`Cannot call ${token}: actor "${actor}" must do the same in every run; ${instead}`);
  }
}

/** The state of the guard. */
const state = {
  /** Id of the running actor. */
  actor: undefined as string | undefined,
  /** Number of exempt calls in progress. */
  exemptions: 0,
  /** URLs, or parts of URLs, of modules that may use forbidden globals. */
  trusted: [] as readonly string[],
  report: (_error: DeterminismError): void => {},
};

/** Sets the running actor; undefined if none runs. */
export function setRunningActor(id: string | undefined): void {
  state.actor = id;
}

/** Returns whether an actor runs; otherwise the scenario's own code does. */
export function isActorRunning(): boolean {
  return state.actor !== undefined;
}

/**
 * Calls a function that may use forbidden globals, because it is not part of an actor's behavior: a
 * device may read the clock. If it returns a promise, the exemption lasts until the promise settles.
 *
 * @param call the function.
 * @returns the result of the function.
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
  const end = () => void (state.exemptions = Math.max(0, state.exemptions - 1));
  state.exemptions++;
  let result: T | undefined;
  try {
    result = call();
    return result instanceof Promise ? result.finally(end) as T : result;
  } finally {
    if (!(result instanceof Promise)) end();
  }
}

/** Maximum depth of the stack in which trusted modules are searched. */
const MAX_FRAMES = 200;

/** Returns whether a trusted module is on the stack. */
function isTrusted(): boolean {
  const { trusted } = state;
  if (trusted.length === 0) return false;
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = MAX_FRAMES;
  const stack = new Error().stack ?? "";
  Error.stackTraceLimit = before;
  return trusted.some((url) => stack.includes(url));
}

/**
 * Checks the use of a forbidden global.
 *
 * @throws {DeterminismError} when an actor uses it without an exemption.
 */
function check({ token, instead }: ForbiddenGlobal): void {
  const { actor, exemptions, report } = state;
  if (actor === undefined || exemptions > 0 || isTrusted()) return;
  const error = new DeterminismError(actor, token, instead);
  report(error);
  throw error;
}

/** The property of a forbidden global. */
interface Place {
  readonly global: ForbiddenGlobal;
  readonly holder: object;
  readonly name: PropertyKey;
  /** The replacement in the last run, and the property that it replaced. */
  set?: { readonly before: PropertyDescriptor | undefined; readonly by: PropertyDescriptor };
}

/** Finds the property of a forbidden global, if it exists. */
function placeOf(global: ForbiddenGlobal): Place[] {
  const path = global.token.split("."), name = path.pop()!;
  let holder: unknown = globalThis;
  for (const part of global.holder?.split(".") ?? path) {
    holder = (holder as Record<string, unknown> | undefined)?.[part];
  }
  if (holder === undefined || !(name in (holder as object))) return [];
  return [{ global, holder: holder as object, name }];
}

/** Finds a property descriptor along the prototype chain. */
function describe(holder: object, name: PropertyKey): PropertyDescriptor | undefined {
  for (let object: object | null = holder; object; object = Object.getPrototypeOf(object)) {
    const found = Object.getOwnPropertyDescriptor(object, name);
    if (found) return found;
  }
}

type Callable = (...args: unknown[]) => unknown;

/** Wraps a function or class in a proxy that checks its uses; the proxy keeps its properties. */
function wrap(global: ForbiddenGlobal, real: unknown): unknown {
  const { kind } = global, isHarmless = kind === "date" || kind === "format";
  return new Proxy(real as Callable, {
    construct(target, args, newTarget) {
      if (!isHarmless || args.length === 0) check(global);
      return Reflect.construct(target, args, newTarget);
    },
    apply(target, self, args) {
      if (kind !== "format" || args[0] === undefined) check(global);
      return Reflect.apply(target, self, args);
    },
  });
}

/** Returns the property that replaces a forbidden one. */
function replacement({ global, holder, name }: Omit<Place, "set">): PropertyDescriptor {
  const before = describe(holder, name)!;
  const { get = () => before.value as unknown, set } = before;
  const isRead = global.kind === "get";
  if (!isRead && !before.get) {
    return { value: wrap(global, before.value), configurable: true, writable: true };
  }
  // A getter may be slow at its first call, or return a new value for each object.
  const look = function (this: unknown) {
    if (!isRead) return wrap(global, get.call(this));
    check(global);
    return get.call(this);
  };
  return { get: look, ...set && { set }, configurable: true };
}

/** A direct member of `Deno`. */
const DENO_MEMBER = /^Deno\.\w+$/;

/** Returns a replacement of `Deno`, made once because it has many forbidden members. */
function guardedDeno(): object {
  const real = Deno as unknown as Record<string, unknown>, guarded = Object.create(real);
  for (const global of FORBIDDEN_GLOBALS) {
    const name = global.token.slice("Deno.".length);
    if (!DENO_MEMBER.test(global.token) || !(name in real)) continue;
    Object.defineProperty(guarded, name, replacement({ global, holder: real, name }));
  }
  return guarded;
}

/** Timers of `node:timers`: programs import them by name, so their internal functions are replaced. */
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
    const global = { token: `node:timers.${token}`, instead: TIMER, kind: "call" } as const;
    return name === undefined ? [] : [{ global, holder, name }];
  });
}

/** The guarded `Deno`, and the other places, found when a simulation first runs. */
let known: { readonly deno: object; readonly places: readonly Place[] } | undefined;

function knownPlaces(): NonNullable<typeof known> {
  const others = () =>
    FORBIDDEN_GLOBALS.filter(({ token }) => !DENO_MEMBER.test(token)).flatMap(placeOf);
  return known ??= { deno: guardedDeno(), places: [...nodeTimers(), ...others()] };
}

/** Replaces a property; returns a function that restores it. */
function replace(place: Place): () => void {
  const { holder, name } = place, before = Object.getOwnPropertyDescriptor(holder, name);
  // In nearly every run it is the same as in the last one.
  const isKnown = place.set && place.set.before?.value === before?.value &&
    place.set.before?.get === before?.get;
  if (!isKnown) place.set = { before, by: replacement(place) };
  Object.defineProperty(holder, name, place.set!.by);
  return () => {
    if (before) Object.defineProperty(holder, name, before);
    else Reflect.deleteProperty(holder, name);
  };
}

let restore: (() => void) | undefined;

/**
 * Replaces the forbidden globals.
 *
 * @param trusted URLs, or parts of URLs, of modules that may use them.
 * @param report receives every violation, because an actor may catch the error.
 * @returns a function that restores them.
 * @throws {TypeError} when they are already replaced.
 */
export function forbidGlobals(
  trusted: readonly string[],
  report: (error: DeterminismError) => void,
): () => void {
  if (restore) throw new TypeError("Cannot simulate: only one simulation can run at a time");
  const { deno: value, places } = knownPlaces(), restores = places.map(replace);
  const deno = Object.getOwnPropertyDescriptor(globalThis, "Deno")!;
  Object.defineProperty(globalThis, "Deno", { value, configurable: true });
  restores.push(() => void Object.defineProperty(globalThis, "Deno", deno));
  Object.assign(state, { trusted, report, exemptions: 0 });
  restore = () => {
    for (const each of restores.reverse()) each();
    state.actor = restore = undefined;
  };
  return restore;
}
