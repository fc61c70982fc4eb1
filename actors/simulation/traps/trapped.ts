/**
 * What is not a function of an actor's state and messages: the names that simulations trap and the
 * lint plugin reports.
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
export const TIMER = "use ctx.after()";
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
