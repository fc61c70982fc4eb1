/**
 * The host of a package's actor: an actor of the program that hands each message to the sandbox, and
 * carries out the calls that the package may make.
 *
 * [Note: numbered addresses] The package never has an address. It has numbers of the addresses in its
 * init, messages and answers. Another number ends it, so it cannot reach other actors, and a record
 * that has the form of an address does not leave the sandbox. The sandbox sends one frame of bounded size
 * for each frame that it receives, so it cannot flood its host. The number of its messages in the
 * mailboxes of other actors is bounded, so it cannot flood them either.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import { type Handlers, keyOf, OTHERS } from "../runtime/actor.ts";
import type { Context, Reply } from "../runtime/context.ts";
import { describeFailure, messageOf } from "../runtime/failure.ts";
import { handlersOf } from "../runtime/spawning.ts";
import {
  type ActorRef,
  type ActorSpec,
  assertInput,
  escapeControls,
  inOneLine,
  isMessage,
  isRef,
  kindOf,
  type Message,
} from "../runtime/types.ts";
import {
  type Check,
  checkDefinition,
  checkProtocol,
  classOf,
  openHandlers,
  type Permissions,
  REF,
  type Schemas,
  validate,
  validateMessages,
  valueCounter,
} from "./define.ts";
import type { Answer, Call, HostFrame, Turn } from "./guest.ts";
import {
  checkIntegrity,
  type GraphOptions,
  type HashedModule,
  hashModule,
  type Lock,
} from "./modules.ts";
import { grantsOf, type Port, type SandboxModule, start } from "./start.ts";

/** An actor of a package, by its own description. */
export interface InspectedActor {
  /** Name. */
  readonly name: string;
  /** Version of its protocol. */
  readonly protocol: number;
  /** Schemas of its messages, by type. */
  readonly messages: Schemas;
  /** Permissions that it asks for. */
  readonly permissions: Permissions;
}

/** Options of an inspection. */
export interface InspectOptions extends GraphOptions {
  /** Name of the exported definition. Default `actor`. */
  readonly export?: string | undefined;
  /** Time limit of its modules, in milliseconds. Default 10,000. */
  readonly timeLimitMs?: number;
}

const TIME_LIMIT_MS = 10_000;

/** Maximum number of characters of a description. */
const DESCRIPTION_MAX = 2 ** 20;

/** Maximum number of characters of a name, or of the subject of a permission. */
const NAME_MAX = 200;

/** Maximum number of messages of an actor, and of permissions of one kind. */
const LIST_MAX = 256;

/** Maximum number of characters of an error of a package. */
const WHY_MAX = 1000;

/**
 * Inspects the actor of a package: its modules are fetched and hashed, and run in a process without
 * permissions for a limited time. Its factory is not called.
 *
 * @param specifier `jsr:`, `npm:`, or an absolute URL.
 * @throws {TypeError} (as a rejection) when a module cannot be fetched, or exports no definition.
 * @throws {Error} (as a rejection) when it fails, or takes too long.
 *
 * @example
 * ```ts ignore
 * import { inspectActor } from "@troupe/troupe/actors";
 *
 * const { name, messages, hashed } = await inspectActor("jsr:@you/counter@1");
 * ```
 */
export async function inspectActor(
  specifier: string,
  options: InspectOptions = {},
): Promise<InspectedActor & { readonly hashed: HashedModule }> {
  const hashed = await hashModule(specifier, options);
  return { ...await inspectHashed(hashed, options), hashed };
}

/** Inspects modules that are hashed already, and runs no others. */
export async function inspectHashed(
  { specifier: from, integrity, lock }: HashedModule,
  { export: name = "actor", timeLimitMs = TIME_LIMIT_MS }: InspectOptions = {},
): Promise<InspectedActor> {
  const cannot = `Cannot inspect ${from}`, grants = grantsOf(cannot, {});
  try {
    const port = await start("inspected", { from, integrity, lock, grants, isolate: "process" });
    await using _ = { [Symbol.asyncDispose]: () => port.close() };
    return await describe(port, from, name, timeLimitMs);
  } catch (error) {
    const why = inOneLine(messageOf(error).slice(0, WHY_MAX));
    throw /^Cannot (use|fetch|hash) /.test(why)
      ? new TypeError(why)
      : new Error(`${cannot}: ${why}`);
  }
}

/**
 * Makes a sandbox import its package, and returns the description of the actor.
 *
 * @throws {TypeError} (as a rejection) when it is not a definition.
 * @throws {RangeError} (as a rejection) when it is too large.
 * @throws {Error} (as a rejection) when a module fails or takes too long.
 */
async function describe(
  port: Pick<Port, "exchange">,
  from: string,
  name: string,
  limitMs: number,
): Promise<InspectedActor> {
  const cannot = `Cannot use "${name}" of ${from}`;
  const frame: HostFrame = { kind: "load", from, export: name };
  const said = await port.exchange(frame, limitMs);
  if (typeof said !== "string") throw errorOf(said);
  const must = `its description must have at most ${DESCRIPTION_MAX} characters`;
  assertInput(said.length <= DESCRIPTION_MAX, `${cannot}: ${must}`, said.length);
  const definition: unknown = { ...JSON.parse(said), create() {} };
  checkDefinition(cannot, definition);
  const { name: called, protocol, messages, permissions = {} } = definition;
  const types = Object.keys(messages), kinds = Object.keys(permissions);
  const lists = Object.values(permissions).filter((value) => typeof value !== "boolean");
  const areLists = lists.every((list) => Array.isArray(list) && list.length <= LIST_MAX);
  const areShort = [called, ...types, ...kinds, ...lists.flat()].every((text) =>
    typeof text === "string" && text.length <= NAME_MAX
  );
  const most = `at most ${LIST_MAX} of each kind, of at most ${NAME_MAX} characters`;
  if (areLists && areShort && types.length <= LIST_MAX) {
    return { name: called, protocol, messages, permissions };
  }
  throw new RangeError(`${cannot}: its names, messages and permissions must be ${most}`);
}

/** Returns an error of a sandbox. Its fields are untrusted, and are shown to users. */
function errorOf(fields: unknown): Error {
  const { name, message, stack } = Object(fields) as Record<string, unknown>;
  const text = (value: unknown) =>
    typeof value === "string" ? escapeControls(value.slice(0, 10 * WHY_MAX)) : "";
  return Object.assign(new Error(text(message)), {
    name: text(name) || "Error",
    stack: text(stack),
  });
}

/** Default of {@linkcode SandboxOptions.stepLimitMs}. */
const STEP_LIMIT_MS = 60_000;

/** Options of {@linkcode packageActor}. */
export interface SandboxOptions {
  /** Specifier of its module: `jsr:@you/actor@1`, `npm:you-actor@1`, or an absolute URL. */
  readonly from: string;
  /** Name of the exported definition. Default `actor`. */
  readonly export?: string;
  /** Version of the protocol that the program speaks. Default: any. */
  readonly protocol?: number;
  /** Hash that its modules must have before one of them runs: see {@linkcode hashModule}. Default:
   * any. */
  readonly integrity?: string;
  /** Versions of its imports, as {@linkcode hashModule} gave them with that hash. Default: the newest
   * ones. */
  readonly lock?: Lock;
  /** Permissions of its process. Default: none. `inherit`: it is trusted as the program's own code, and
   * runs without a sandbox in the isolate where it is spawned. */
  readonly permissions?: Permissions | "inherit";
  /** Messages that it may send to others, by type, with the schema of each. Default: none; it may
   * answer, and send to itself. */
  readonly sends?: Schemas;
  /** Schemas of its answers, by the type of the question. Default: any answer. */
  readonly answers?: Schemas;
  /** Time limit of each turn, from a message or an answer to the next wait or the end, in milliseconds.
   * Default 60,000. */
  readonly stepLimitMs?: number;
  /** Default `process`. A `worker` costs less and holds less: its memory has no limit, an endless loop
   * keeps a core until the program ends, and it can print. The program must be started with
   * `--unstable-worker-options --cached-only --frozen`. */
  readonly isolate?: "process" | "worker";
}

/** Options of the host, with their defaults. */
export interface HostOptions
  extends SandboxModule, Pick<SandboxOptions, "protocol" | "sends" | "answers"> {
  readonly export: string;
  readonly stepLimitMs: number;
}

/**
 * Returns the spec of a package's actor, to be spawned like any other.
 *
 * @throws {TypeError} when an option is of another kind than it must be.
 * @throws {RangeError} when an option is out of its bounds.
 * @throws {Deno.errors.NotCapable} when a permission is granted that the program lacks.
 *
 * @example
 * ```ts
 * import { type Ask, createSystem, packageActor } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const code = `export const actor = { name: "double", protocol: 1, messages: { Double: {} },
 *   create: (ctx) => ({ Double: ({ n }) => ctx.reply(2 * n) }) };`;
 * const from = `data:text/javascript,${encodeURIComponent(code)}`;
 * type Double = { type: "Double"; n: number } & Ask<number>;
 *
 * await using system = createSystem();
 * const double = system.spawn(packageActor<undefined, Double>({ from }), undefined, { id: "double" });
 * assert.equal(await system.ask(double, { type: "Double", n: 21 }), 42);
 * ```
 *
 * @typeParam Init argument of the factory.
 * @typeParam M messages that the actor handles.
 */
export function packageActor<Init = never, M extends Message = never>(
  options: SandboxOptions,
): ActorSpec<Init, M> {
  const { from, export: name = "actor", permissions = {}, ...rest } = options;
  const { sends = {}, answers = {}, stepLimitMs = STEP_LIMIT_MS, isolate = "process" } = options;
  const cannot = `Cannot use "${name}" of ${from}`;
  if (!URL.canParse(from)) {
    throw new TypeError(`${cannot}: from must be a specifier or an absolute URL`);
  }
  const isLimit = Number.isFinite(stepLimitMs) && stepLimitMs > 0;
  assertInput(isLimit, `${cannot}: stepLimitMs must be a positive number`, stepLimitMs);
  const isPlace = isolate === "process" || isolate === "worker";
  assertInput(isPlace, `${cannot}: isolate must be process or worker`, isolate);
  const isTrusted = permissions === "inherit", kind = kindOf(permissions);
  const areGiven = isTrusted || kind === "object";
  const must = `${cannot}: its permissions must be a record, or "inherit"`;
  assertInput(areGiven, must, kind, TypeError);
  for (const schemas of [sends, answers]) validateMessages(cannot, name, schemas);
  const grants = grantsOf(cannot, isTrusted ? {} : permissions);
  const argument: HostOptions = { ...rest, from, export: name, grants, stepLimitMs, isolate };
  return { module: import.meta.url, export: isTrusted ? "trusted" : "host", argument };
}

/** Makes the actor of a package that is trusted, in the isolate of the program. */
export async function trusted(
  ctx: Context<Message>,
  init: unknown,
  { from, integrity, lock, export: name, protocol }: HostOptions,
): Promise<Handlers<Message>> {
  const cannot = `Cannot use "${name}" of ${from}`;
  if (integrity !== undefined) {
    checkIntegrity(from, integrity, (await hashModule(from, { lock })).integrity);
  }
  const { [name]: definition } = await import(from) as Record<string, unknown>;
  checkDefinition(cannot, definition);
  checkProtocol(cannot, protocol, definition.protocol);
  const made = handlersOf(ctx.self.id, name, await definition.create(ctx, init));
  const { check, handle } = openHandlers(cannot, definition, made);
  return {
    [OTHERS](message: Message) {
      const why = check(message);
      return why === undefined ? handle(message) : ctx.refuse(why);
    },
  };
}

/** Makes the host of a package's actor. */
export async function host(ctx: Context<Message>, init: unknown, options: HostOptions) {
  const actor = new Host(ctx, options, () => start(ctx.self.id, options));
  await actor.begin(init);
  return { [OTHERS]: (message: Message) => actor.handle(message) };
}

/** Maximum number and bytes of a package's messages that wait in all mailboxes together. */
const WAITING_MAX = 65_536;
const WAITING_BYTES_MAX = 2 ** 28;

/** Maximum number of actors that a package knows, and of answers that it owes. */
const KNOWN_MAX = 100_000;

/** Milliseconds that an actor that ends waits for the end of its process. */
const CLOSE_MS = 5000;

/** Prefix of the types of messages between runtime and host. A package cannot send them. */
const OWN = "~";

/** A message of the host to itself: `to` has handled a message, `to` has ended with all that wait for
 * it, or a timer of the package has fired. */
interface Own extends Message {
  readonly type: "~handled" | "~down" | "~timer";
  readonly to: string;
  readonly bytes?: number;
  /** Message of the timer. */
  readonly message?: Message;
}

type Sandbox = Pick<Port, "exchange" | "close">;

/** Messages of a package that wait at one actor, or timers of one key. */
interface Account {
  count: number;
  bytes: number;
}

/** The state of a host. */
export class Host {
  readonly #maySend: Check<Message>;
  readonly #answers: ReadonlyMap<string, Check<unknown>>;
  #opening: Promise<Sandbox> | undefined;
  /** Actors by their numbers in the sandbox; the first is the actor itself. */
  readonly #refs: ActorRef<Message>[] = [];
  readonly #numbers = new Map<string, number>();
  /** Questions that are answered later, by the number of their message. */
  readonly #pendingReplies = new Map<number, { readonly type: string; readonly reply: Reply }>();
  readonly #watched = new Set<string>();
  readonly #accounts = new Map<string, Account>();
  readonly #waiting: Account = { count: 0, bytes: 0 };
  #messages = 0;

  /** @param open starts the sandbox. */
  constructor(
    private readonly ctx: Context<Message>,
    private readonly options: HostOptions,
    private readonly open: () => Promise<Sandbox>,
  ) {
    const { from, export: name, sends = {}, answers = {} } = options;
    const cannot = `Cannot use "${name}" of ${from}`, { id } = ctx.self;
    this.#maySend = validateMessages(cannot, id, sends);
    this.#answers = new Map(
      Object.entries(answers).map(([type, schema]) => [type, validate(cannot, id, schema)]),
    );
    ctx.defer(() => this.#close());
  }

  /** Starts the sandbox and makes the actor. */
  async begin(init: unknown): Promise<void> {
    const { from, export: name, protocol, stepLimitMs } = this.options;
    const said = await this.ctx.external(async () => {
      this.#opening = this.open();
      return await describe(await this.#opening, from, name, stepLimitMs);
    });
    checkProtocol(`Cannot use "${name}" of ${from}`, protocol, said.protocol);
    const self = { ...this.#toPackage(this.ctx.self) as object, id: this.ctx.self.id };
    const frame = { kind: "make", self, init: this.#toPackage(init), ...this.#world() } as const;
    await this.#run(frame, { type: "init" }, -1);
  }

  /** Handles a message for the package, for the host, or of a timer. */
  async handle(received: Message): Promise<void> {
    const { type, to, bytes, message = received } = received.type.startsWith(OWN)
      ? received as Own
      : { type: "", to: "" };
    if (type) this.#release(to, bytes);
    if (type === "~down") this.#watched.delete(to);
    if (type === "~down" || type === "~handled") return;
    let copy: Message;
    try {
      copy = this.#toPackage(message) as Message;
    } catch (error) {
      return this.ctx.refuse((error as Error).message);
    }
    const number = this.#messages++;
    await this.#run({ kind: "message", number, message: copy, ...this.#world() }, message, number);
  }

  #world() {
    return { now: this.ctx.now(), seed: this.ctx.random("package") };
  }

  /** Lets the package handle a frame, and carries out its calls until the message is handled. */
  async #run(first: HostFrame, message: Message, number: number): Promise<void> {
    const asks = new Map<number, Promise<readonly [number, Answer]>>();
    for (let frame = first;;) {
      const turn = await this.#exchange(frame);
      if (typeof turn.refusal === "string") return this.ctx.refuse(turn.refusal.slice(0, 300));
      for (const call of turn.calls) this.#perform(call, message, number, asks);
      if (turn.isOver === true) {
        if (turn.isDeferred === true) this.#defer(number, message.type);
        return;
      }
      if (asks.size === 0) throw protocolError("it must finish, or wait for an answer");
      const [ask, answer] = await Promise.race(asks.values());
      asks.delete(ask);
      frame = { kind: "answer", ask, answer };
    }
  }

  async #exchange(frame: HostFrame): Promise<Turn> {
    const { stepLimitMs } = this.options;
    const turn = await this.ctx.external(async () =>
      await (await this.#opening!).exchange(frame, stepLimitMs)
    ) as Turn | null;
    if (Array.isArray(turn?.calls) && turn.calls.length <= WAITING_MAX) return turn;
    throw protocolError("its turn must be a list of calls");
  }

  #perform(
    call: Call,
    handled: Message,
    number: number,
    asks: Map<number, Promise<readonly [number, Answer]>>,
  ): void {
    const ctx = this.ctx;
    switch (call?.call) {
      case "send": {
        const { to, message, receipt } = this.#outgoing(call.to, call.message);
        return ctx.send(to, message, { receipt });
      }
      case "ask": {
        const ask = numberIn(call.ask), { timeoutMs } = call;
        const limit = timeoutMs === undefined ? {} : { timeoutMs: numberIn(timeoutMs) };
        if (asks.has(ask)) throw protocolError("it must number its questions");
        const { to, message, receipt } = this.#outgoing(call.to, call.message);
        const answer: Promise<unknown> = ctx.ask(to, message, { ...limit, receipt });
        const end = answer.then((value) => ({ value: this.#toPackage(value) })).catch((error) => {
          const { name, message } = describeFailure("", "throw", error).error;
          return { error: { name, message } };
        });
        return void asks.set(ask, end.then((answer) => [ask, answer]));
      }
      case "reply": {
        const of = numberIn(call.number),
          owed = of === number ? undefined : this.#pendingReplies.get(of);
        if (!owed && of !== number) throw protocolError("it must reply once to a deferred message");
        const { value } = fromPackage(call.value, this.#refs), { type } = owed ?? handled;
        const why = this.#answers.get(type)?.(value);
        if (why !== undefined) throw new TypeError(`Cannot answer "${type}": ${why}`);
        this.#pendingReplies.delete(of);
        return owed ? owed.reply(value) : ctx.reply(value);
      }
      case "after": {
        const { message, bytes: held } = this.#message(call.message),
          key = typeof call.key === "string" ? call.key : undefined;
        const to = key === undefined ? "timer" : `timer ${key}`, bytes = held + 2 * to.length;
        const delayMs = numberIn(call.delayMs);
        // A timer replaces an earlier one with its key.
        if (key !== undefined) this.#release(to);
        this.#reserve(to, bytes);
        return ctx.after(delayMs, { type: "~timer", to, bytes, message } as Own, key);
      }
      case "fail":
        throw errorOf(call.error);
      default:
        throw protocolError("its calls must be send, ask, reply, after or fail");
    }
  }

  /** Checks a message to another actor, and counts it as waiting. */
  #outgoing(number: unknown, given: unknown) {
    const to = refOf(number, this.#refs), { message, bytes } = this.#message(given);
    const why = to === this.#refs[0] ? undefined : this.#maySend(message);
    if (why !== undefined) {
      throw new TypeError(`Cannot send "${inOneLine(message.type.slice(0, 100))}": ${why}`);
    }
    const key = keyOf(to);
    if (!this.#watched.has(key)) this.ctx.watch(to, () => ({ type: "~down", to: key }) as Own);
    this.#watched.add(key);
    this.#reserve(key, bytes);
    const receipt: Own = { type: "~handled", to: key, bytes };
    return { to, message, receipt };
  }

  #message(given: unknown): { readonly message: Message; readonly bytes: number } {
    const { value, bytes } = fromPackage(given, this.#refs);
    if (isMessage(value) && !value.type.startsWith(OWN)) return { message: value, bytes };
    throw protocolError(`its messages must be records with a type that does not begin with ${OWN}`);
  }

  #reserve(to: string, bytes: number): void {
    const { count, bytes: before } = this.#waiting;
    if (count === WAITING_MAX || count > 0 && before + bytes > WAITING_BYTES_MAX) {
      const most = `${WAITING_MAX} of its messages must wait, of ${WAITING_BYTES_MAX} bytes`;
      throw new RangeError(`it must not flood others: at most ${most} together`);
    }
    const account = this.#accounts.getOrInsertComputed(to, () => ({ count: 0, bytes: 0 }));
    for (const one of [account, this.#waiting]) {
      one.count++;
      one.bytes += bytes;
    }
  }

  /** Counts one message as handled; without bytes, all messages to an actor. A receipt that comes after
   * the end of its receiver releases nothing. */
  #release(to: string, bytes?: number): void {
    const account = this.#accounts.get(to);
    if (!account) return;
    const count = bytes === undefined ? account.count : 1;
    const released = bytes === undefined || count === account.count ? account.bytes : bytes;
    for (const one of [this.#waiting, account]) {
      one.count -= count;
      one.bytes -= released;
    }
    if (account.count === 0) this.#accounts.delete(to);
  }

  #defer(number: number, type: string): void {
    if (this.#pendingReplies.size === KNOWN_MAX) {
      throw new RangeError(`it must owe at most ${KNOWN_MAX} answers`);
    }
    this.#pendingReplies.set(number, { type, reply: this.ctx.deferReply() });
  }

  /** Returns a value as the package gets it, and notes the actors in it. */
  #toPackage(value: unknown): unknown {
    return translate(value, (record) => {
      if (!isRef(record)) return undefined;
      const key = `${keyOf(record)} ${record.system}`, known = this.#numbers.get(key);
      const number = known ?? this.#refs.length;
      if (known === undefined) {
        if (number === KNOWN_MAX) throw new RangeError(`it must know at most ${KNOWN_MAX} actors`);
        this.#numbers.set(key, number);
        this.#refs.push(record as ActorRef<never> as ActorRef<Message>);
      }
      return { [REF]: number };
    }).value;
  }

  async #close(): Promise<void> {
    const closed = this.#opening?.then((sandbox) => sandbox.close());
    // Its modules may still be fetched.
    if (closed) await deadline(closed, CLOSE_MS).catch(() => {});
  }
}

function numberIn(value: unknown): number {
  if (typeof value === "number") return value;
  throw protocolError(`it must give a number, received ${kindOf(value)}`);
}

/** Returns the error of a sandbox that breaks the protocol, which its own code never does. */
function protocolError(what: string): Error {
  return new Error(`the sandbox broke its protocol: ${what}`);
}

type Values = Readonly<Record<string, unknown>>;

function refOf(value: unknown, refs: readonly ActorRef<Message>[]): ActorRef<Message> {
  const number = Object(value)[REF] as unknown;
  const ref = Number.isSafeInteger(number) ? refs[number as number] : undefined;
  if (ref) return ref;
  throw protocolError(`its addresses must be among the ${refs.length} that it was given`);
}

/**
 * Returns a value of a package with real addresses.
 *
 * @throws {Error} when it has a number that was not given, or a record in the form of an address.
 */
function fromPackage(value: unknown, refs: readonly ActorRef<Message>[]) {
  return translate(value, (record) => {
    if (Object.hasOwn(record, REF)) return refOf(record, refs);
    if (!isRef(record)) return undefined;
    throw protocolError("its messages must hold no addresses but its own numbers");
  });
}

/**
 * Returns a copy of a value, and its approximate number of bytes.
 *
 * @param replace returns the replacement of a record; undefined: its copy.
 * @throws {RangeError} when it has too many values, or is too deep, for example because of a cycle.
 * @throws {TypeError} when it holds a value that messages of packages cannot hold.
 */
function translate(
  value: unknown,
  replace: (record: Values) => unknown,
): { readonly value: unknown; readonly bytes: number } {
  const count = valueCounter();
  let bytes = 0;
  const list = (values: Iterable<unknown>, depth: number) =>
    Array.from(values, (one) => copy(one, depth + 1));
  const copy = (value: unknown, depth: number): unknown => {
    count(depth, Array.isArray(value) ? value.length : 0);
    bytes += typeof value === "string" ? 2 * value.length : 8;
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return list(value, depth);
    if (value instanceof Map) return new Map(list(value, depth) as [unknown, unknown][]);
    if (value instanceof Set) return new Set(list(value, depth));
    const name = classOf(value);
    if (name === "Date") return value;
    if (ArrayBuffer.isView(value) || name === "ArrayBuffer") {
      const buffer = (value as ArrayBufferView).buffer ?? value;
      if (!(buffer instanceof ArrayBuffer) || buffer.resizable) {
        throw new TypeError("it must hold no shared or resizable buffer");
      }
      bytes += buffer.byteLength;
      return value;
    }
    if (name !== "Object") throw new TypeError(`it must hold no ${name}`);
    if (Object.hasOwn(value, "__proto__")) throw new TypeError('it must have no "__proto__"');
    return replace(value as Values) ??
      Object.fromEntries(Object.entries(value).map(([key, one]) => [key, copy(one, depth + 1)]));
  };
  return { value: copy(value, 0), bytes };
}
