/**
 * The sandbox of a package's actor: a process or a worker with the granted permissions only. It sends
 * frames only as answers.
 *
 * @module
 */

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { messageOf } from "../runtime/failure.ts";
import { endReason } from "../transports/process.ts";
import { closeRendezvousFolder, openRendezvousFolder } from "../transports/rendezvous.ts";
import { type FrameSource, Outbox, receiveFrames } from "../transports/stream.ts";
import { assertInput, inOneLine } from "../runtime/types.ts";
import type { Permissions } from "./define.ts";
import {
  checkIntegrity,
  deno,
  hashGraph,
  hashModule,
  hostOf,
  importFlags,
  kill,
  type Lock,
  NO_CONFIG,
  NO_CONFIG_ENV,
  packageFolder,
} from "./modules.ts";

/** Maximum bytes of one frame of the sandbox. */
const FRAME_BYTES_MAX = 2 ** 27;

/** Limit of the JavaScript heap of a process, in MiB. Buffers do not count. */
const HEAP_MB = 512;

/** Milliseconds between two checks of the time limit. */
const LOOK_MS = 50;

/** Time limit of the start of a process, before code of the package runs, in milliseconds. */
const BEGIN_MS = 60_000;

/** The module that runs in the sandbox. */
const GUEST = new URL("./guest.ts", import.meta.url).href;

/** Kinds of permissions, with the field of Deno's descriptor that names the subject. */
const KINDS = {
  read: "path",
  write: "path",
  net: "host",
  env: "variable",
  run: "command",
  ffi: "path",
  sys: "kind",
  import: "host",
} as const;

type Kind = keyof typeof KINDS;

/** Granted permissions of each kind: all, or a list. Paths are absolute. */
type Grants = Readonly<Record<Kind, true | readonly string[]>>;

/** A package and its sandbox. */
export interface SandboxModule {
  /** Specifier of the module. */
  readonly from: string;
  /** Hash that its modules must have; undefined: any. */
  readonly integrity?: string | undefined;
  /** Chosen versions of its imports; undefined: the newest ones. */
  readonly lock?: Lock | undefined;
  readonly grants: Grants;
  readonly isolate: "process" | "worker";
}

/**
 * Returns the permissions of a package's actor.
 *
 * @param cannot first words of an error.
 * @throws {TypeError} when a kind is unknown, or not a list of strings.
 * @throws {Deno.errors.NotCapable} when the program lacks one.
 */
export function grantsOf(cannot: string, permissions: Permissions): Grants {
  for (const [name, value] of Object.entries(permissions)) {
    const must = `${cannot}: its permissions must be of ${Object.keys(KINDS).join(", ")}`;
    assertInput(Object.hasOwn(KINDS, name), must, name, TypeError);
    const isList = Array.isArray(value) && value.every((one) => typeof one === "string" && one);
    if (value === undefined || typeof value === "boolean" || isList) continue;
    throw new TypeError(
      `${cannot}: its permission ${name} must be true, false or a list of strings`,
    );
  }
  return Object.fromEntries(
    Object.entries(KINDS).map(([kind, about]) => {
      const value = permissions[kind as Kind] ?? false, texts = value === true ? [] : value || [];
      const list = texts.map((text) => about === "path" ? resolve(text) : text);
      for (const one of value === true ? [undefined] : list) {
        const descriptor = { name: kind, ...one !== undefined && { [about]: one } };
        const { state, partial } = Deno.permissions.querySync(
          descriptor as Deno.PermissionDescriptor,
        );
        if (state === "granted" && partial !== true) continue;
        const lack = one === undefined ? `${kind} as a whole` : `${kind} of ${one}`;
        throw new Deno.errors.NotCapable(
          `${cannot}: it must be granted no more than this program has, which lacks ${lack}`,
        );
      }
      return [kind, value === true || list];
    }),
  ) as Grants;
}

/** A connection to a sandbox. */
interface Link {
  send(frame: unknown): void;
  /** Ends it, even if it is busy. */
  end(): void;
  /** Resolves with the cause when it has ended and nothing of it is left. */
  readonly ended: Promise<string>;
}

/** A sandbox, which answers each frame with one frame. */
export class Port {
  readonly #link: Link;
  #turn: PromiseWithResolvers<unknown> | undefined;
  #why: string | undefined;

  /**
   * @param what name in reports.
   * @param open opens the connection.
   */
  constructor(
    private readonly what: string,
    open: (receive: (frame: unknown) => void, fail: Fail) => Link,
  ) {
    const fail = (why: string) => this.#end(`it broke the protocol: ${why}`);
    this.#link = open((frame) => {
      if (!this.#turn) return fail("it must not speak unless it is asked");
      this.#turn.resolve(frame);
      this.#turn = undefined;
    }, fail);
    this.#link.ended.then((cause) => this.#end(cause));
  }

  /**
   * Sends a frame and returns the answer.
   *
   * [Note: a busy program] While the program itself is busy, or the machine sleeps, an answer may have
   * arrived unread. So the limit counts turns of the event loop, because each turn reads answers.
   *
   * @throws {Error} (as a rejection) with the reason when the sandbox has ended, or takes too long.
   */
  async exchange(frame: unknown, limitMs: number): Promise<unknown> {
    const turn = this.#turn = Promise.withResolvers<unknown>();
    if (this.#why === undefined) this.#link.send(frame);
    else this.#end(this.#why);
    const lookMs = Math.min(LOOK_MS, limitMs);
    let leftMs = limitMs;
    const timer = setInterval(() => {
      if ((leftMs -= lookMs) <= 0) this.#end(`one step must take at most ${limitMs} ms`);
    }, lookMs);
    try {
      return await turn.promise;
    } finally {
      clearInterval(timer);
    }
  }

  /** Ends the sandbox; resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.#end("it was ended");
    await this.#link.ended;
  }

  #end(why: string): void {
    this.#why ??= why;
    this.#link.end();
    this.#turn?.reject(new Error(`the ${this.what} has ended: ${this.#why}`));
    this.#turn = undefined;
  }
}

type Fail = (why: string) => void;

/**
 * Fetches the modules of a package, checks them, and starts its sandbox; none of its code runs yet.
 *
 * @param id of the actor, for reports.
 * @throws {TypeError} (as a rejection) when a module cannot be fetched, or a worker cannot be sandboxed.
 * @throws {RangeError} (as a rejection) when the hash is another, or a file is not in its folder.
 */
export async function start(id: string, module: SandboxModule): Promise<Port> {
  const { isolate, grants } = module, prepared = await preparedFor(module);
  const box: Box = {
    ...prepared,
    id,
    grants: {
      ...grants,
      read: both(grants.read, prepared.read),
      import: both(grants.import, prepared.hosts),
    },
    isClosed: grants.import !== true && grants.import.length === 0,
  };
  const open = isolate === "worker" ? openWorker : openProcess;
  const port = new Port(`${isolate} of "${id}"`, (...to) => open(box, ...to));
  await port.exchange({ kind: "hello" }, BEGIN_MS);
  return port;
}

/** Files and flags that a package needs. */
type Prepared = Awaited<ReturnType<typeof prepare>>;

/** Packages that this program has fetched. */
const packages = new Map<string, Promise<Prepared>>();

async function preparedFor(module: SandboxModule): Promise<Prepared> {
  const { from, integrity, lock } = module, key = JSON.stringify([from, integrity, lock]);
  const known = await packages.get(key)?.catch(() => undefined);
  // Its files may have changed since.
  if (known && await hashGraph(known.graph).catch(() => "") === known.graph.integrity) return known;
  const prepared = prepare(module);
  packages.set(key, prepared);
  return await prepared;
}

async function prepare({ from, integrity, lock }: SandboxModule) {
  const graph = await hashModule(from, { lock });
  checkIntegrity(from, integrity, graph.integrity);
  const own = await packageFolder(from), runtime = await packageFolder(GUEST);
  const read = graph.modules.flatMap(({ specifier, local }) =>
    specifier.startsWith("file:") ? local ?? [] : []
  );
  for (const file of read) {
    // Also through a link, a package reads no file outside its folder.
    const real = await Deno.realPath(file);
    if (own && real.startsWith(join(own.path, "/"))) continue;
    const must = own ? `all that it imports must be in ${own.path}` : "it must import no file";
    throw new RangeError(`Cannot load ${from}: ${must}, received ${real}`);
  }
  const imports = own?.imports ?? {};
  // Where this library is published, its modules import by no names.
  const scopes = runtime && { [pathToFileURL(join(runtime.path, "/")).href]: runtime.imports };
  const importMap = JSON.stringify({ imports, scopes: scopes ?? {} });
  const folder = openRendezvousFolder();
  try {
    const paths = writeFiles(folder, importMap, JSON.stringify(graph.lock));
    await deno("load", from, ["cache", ...paths, "--frozen=false", ...importFlags(from), GUEST]);
    const { denoDir } = JSON.parse(await deno("load", "--json", ["info", "--no-config"]));
    return {
      graph,
      /** Files of its modules. */
      read,
      /** Hosts of its modules. */
      hosts: [...new Set(graph.modules.flatMap((one) => hostOf(one.specifier) ?? []))],
      /** Names that its configuration defines. */
      names: Object.keys(imports),
      importMap,
      lock: Deno.readTextFileSync(join(folder, "deno.lock")),
      /** Folder of Deno's cache. */
      cache: denoDir as string,
    };
  } finally {
    closeRendezvousFolder(folder);
  }
}

/** Writes the import map and the lock, and returns their flags. */
function writeFiles(folder: string, importMap: string, lock: string): string[] {
  const paths = ["imports.json", "deno.lock"].map((name) => join(folder, name)) as [string, string];
  Deno.writeTextFileSync(paths[0], importMap);
  Deno.writeTextFileSync(paths[1], lock);
  return [...NO_CONFIG, `--import-map=${paths[0]}`, `--lock=${paths[1]}`];
}

/** A prepared package with its permissions. */
type Box = Prepared & {
  readonly id: string;
  readonly grants: Grants;
  /** True if it may import only from the hosts of its modules. */
  readonly isClosed: boolean;
};

type Open = (box: Box, receive: (frame: unknown) => void, fail: Fail) => Link;

type Some = true | readonly string[];

const both = (one: Some, other: readonly string[]): Some => one === true || [...one, ...other];

/** Starts a process: frames go over its standard input and output. */
const openProcess: Open = (box, receive, fail) => {
  const folder = openRendezvousFolder();
  let child: Deno.ChildProcess | undefined;
  try {
    child = commandOf(box, folder).spawn();
    const parentWatch = Deno.build.os === "windows" ? undefined : watchParent(child.pid, folder);
    const outbox = new Outbox(), writer = child.stdin.getWriter();
    outbox.attach({
      write: async (bytes) => (await writer.write(bytes), bytes.length),
      close: () => void writer.abort().catch(() => {}),
    });
    const output = child.stdout.getReader({ mode: "byob" }), printed = child.stderr.getReader();
    const received = receiveFrames(sourceOf(output), receive, FRAME_BYTES_MAX);
    const read = [received.catch((error) => fail(messageOf(error))), showLines(printed, box.id)];
    const cancel = () => [output, printed].map((reader) => reader.cancel().catch(() => {}));
    const live = async ({ status }: Deno.ChildProcess) => {
      const reason = endReason(await status);
      if (parentWatch) kill(parentWatch);
      await parentWatch?.status;
      await parentWatch?.stdin.close().catch(() => {});
      // A child of the process may keep its output open.
      const late = setTimeout(cancel, CLOSED_MS);
      await Promise.all(read);
      clearTimeout(late);
      await Promise.all(cancel());
      outbox.close();
      closeRendezvousFolder(folder);
      return reason;
    };
    return { send: (frame) => outbox.post(frame), end: () => kill(child!), ended: live(child) };
  } catch (error) {
    if (child) kill(child);
    closeRendezvousFolder(folder);
    throw error;
  }
};

/** Time limit for reading the output of a process that has ended, in milliseconds. */
const CLOSED_MS = 1000;

/** Returns the command of a process. */
function commandOf(
  { grants, isClosed, importMap, lock, cache }: Box,
  folder: string,
): Deno.Command {
  const own = join(folder, "cache");
  Deno.mkdirSync(own);
  for (const { name } of Deno.readDirSync(cache)) {
    // SQLite follows the link of a database, and finds its other files next to the target.
    if (name === KEPT || /-(wal|shm)$/.test(name)) continue;
    Deno.symlinkSync(join(cache, name), join(own, name));
  }
  Deno.writeTextFileSync(join(own, KEPT), "");
  return new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", ...writeFiles(folder, importMap, lock), "--no-prompt"],
      // An actor that may import from elsewhere may import npm packages from there, too.
      ...isClosed ? ["--cached-only", "--frozen"] : [],
      ...grantFlags(grants),
      `--v8-flags=--max-old-space-size=${HEAP_MB}`,
      GUEST,
    ],
    clearEnv: true,
    env: { ...environment(grants), DENO_DIR: own },
    cwd: folder,
    ...{ stdin: "piped", stdout: "piped", stderr: "piped" },
  });
}

/** Deno's folder of `localStorage` and `caches`, which need no permission. In the cache of a sandbox it
 * is a file, so they cannot be opened. Otherwise they could fill the disk, or carry messages between
 * sandboxes. */
const KEPT = "location_data";

/** Returns the flags of permissions. A comma in a flag separates paths, so a package could choose the
 * name of a file such that another path is granted. */
function grantFlags(grants: Grants): string[] {
  return Object.entries(grants).flatMap(([kind, list]) => {
    if (list === true) return [`--allow-${kind}`];
    const split = list.find((one) => one.includes(","));
    assertInput(split === undefined, `Cannot grant ${kind}: it must have no comma`, split);
    if (list.length > 0) return [`--allow-${kind}=${list.join()}`];
    // By default, Deno allows imports from some hosts.
    return kind === "import" ? ["--deny-import"] : [];
  });
}

/** Variables that Deno needs to find modules in its cache. */
const CACHE_VARIABLES = ["HOME", "NPM_CONFIG_REGISTRY", "JSR_URL"];

function environment({ env }: Grants): Record<string, string> {
  const names = env === true ? Object.keys(Deno.env.toObject()) : [...CACHE_VARIABLES, ...env];
  const values = names.flatMap((variable) => {
    const { state } = Deno.permissions.querySync({ name: "env", variable });
    const value = state === "granted" ? Deno.env.get(variable) : undefined;
    return value === undefined ? [] : [[variable, value]];
  });
  return { ...Object.fromEntries(values), ...NO_CONFIG_ENV };
}

/**
 * Starts a process that ends the sandbox and removes its folder when the program dies: then the
 * standard input of that process ends. A sandbox in an endless loop could not end itself.
 */
function watchParent(pid: number, folder: string): Deno.ChildProcess {
  return new Deno.Command("sh", {
    // The program may continue after Ctrl-C or the end of a terminal.
    args: ["-c", 'trap "" INT HUP TERM; read -r end; kill -9 "$0"; rm -rf "$1"', `${pid}`, folder],
    ...{ stdin: "piped", stdout: "null", stderr: "null" },
  }).spawn();
}

/** Maximum bytes of one read from a pipe. */
const READ_BYTES = 65_536;

function sourceOf(reader: ReadableStreamBYOBReader): FrameSource {
  return {
    async read(into) {
      const { value } = await reader.read(new Uint8Array(Math.min(into.length, READ_BYTES)));
      if (!value || value.length === 0) return null;
      into.set(value);
      return value.length;
    },
  };
}

/** Maximum number of characters of a line that is shown, and of lines in a second. */
const LINE_MAX = 1000;
const LINES_MAX = 100;

/** Shows lines that a process prints on the standard error, with its id; not more than the limits. */
export async function showLines(
  from: ReadableStreamDefaultReader<Uint8Array>,
  id: string,
  write: (line: string) => void = writeLine,
): Promise<void> {
  const decoder = new TextDecoder();
  let line = "", shown = 0, second = 0;
  const show = () => {
    const now = Math.floor(performance.now() / 1000);
    if (now !== second) [shown, second] = [0, now];
    if (++shown <= LINES_MAX) write(`[${inOneLine(id)}] ${inOneLine(line)}`);
    else if (shown === LINES_MAX + 1) write(`[${inOneLine(id)}] … and more in this second`);
    line = "";
  };
  for (;;) {
    const { value } = await from.read().catch(() => ({ value: undefined }));
    if (!value) break;
    for (const [i, text] of decoder.decode(value, { stream: true }).split("\n").entries()) {
      if (i > 0) show();
      line = (line + text).slice(0, LINE_MAX);
    }
    // A pause leaves CPU time to the program.
    if (shown > LINES_MAX) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  if (line) show();
}

function writeLine(line: string): void {
  const bytes = new TextEncoder().encode(`${line}\n`);
  for (let sent = 0; sent < bytes.length;) sent += Deno.stderr.writeSync(bytes.subarray(sent));
}

/**
 * Starts a worker. It shares the process of the program: its memory has no limit, an endless loop keeps
 * a core until the program ends, and it can print.
 */
const openWorker: Open = ({ graph, names, grants: permissions }, receive, fail) => {
  const lack = lackOfWorkers(), cannot = `Cannot load ${graph.specifier} in a worker`;
  if (lack) throw new TypeError(`${cannot}: ${lack}`);
  const must = `${cannot}: its configuration must define no names of imports`;
  assertInput(names.length === 0, must, names, TypeError);
  // Deno's types lack unstable options.
  const worker = new Worker(
    GUEST,
    { type: "module", ...{ deno: { permissions } } } as WorkerOptions,
  );
  const ended = Promise.withResolvers<string>();
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => {
    // Otherwise the program would end as well.
    event.preventDefault();
    fail(event.message);
  };
  return {
    send: (frame) => worker.postMessage(frame),
    end() {
      worker.terminate();
      ended.resolve("it was ended");
    },
    ended: ended.promise,
  };
};

/** Returns the reason why this program cannot sandbox workers. Without the option Deno ends the program,
 * and a worker without permissions could import any npm package that the program can. */
function lackOfWorkers(): string | undefined {
  const flags = Deno.build.os !== "linux"
    ? []
    : Deno.readTextFileSync("/proc/self/cmdline").split("\0").slice(0, -1 - Deno.args.length);
  const has = (...names: string[]) => names.some((name) => flags.includes(name));
  const isFrozen = has("--cached-only") && has("--frozen", "--frozen=true", "--no-npm");
  if (has("--unstable-worker-options") && isFrozen) return undefined;
  return "the program must be started with --unstable-worker-options, --cached-only and --frozen";
}
