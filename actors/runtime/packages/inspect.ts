/**
 * What a package says of its actor, found out in a process that may do nothing. What comes from there
 * is data of a stranger: bounded, and checked.
 *
 * @module
 */

import type { SpawnOptions } from "../context_api.ts";
import { ActorFailedError } from "../failure.ts";
import { createSystem } from "../system.ts";
import type { Permissions } from "../transports/confinement.ts";
import type { PackageSpec } from "../types.ts";
import { inOneLine } from "../world/escape.ts";
import type { Inspection } from "./bootstrap.ts";
import { checkDefinition, type Schema } from "./definition.ts";
import { type HashedModule, hashModule } from "./hash_module.ts";
import type { GraphOptions } from "./module_graph.ts";

/** What is known of the actor of a package before any of its code runs beside others. */
export interface InspectedActor {
  /** What it calls itself. */
  readonly name: string;
  /** The version of its protocol. */
  readonly protocol: number;
  /** The schemas of its messages, by their types. */
  readonly messages: Readonly<Record<string, Schema>>;
  /** What it says that it must be granted. */
  readonly permissions: Permissions;
  /** What it asked for while it was imported, and was denied: `read "/etc/passwd"`. */
  readonly denied: readonly string[];
}

/** How a package is inspected. */
export interface InspectOptions extends GraphOptions {
  /** Name of the exported definition. Default `actor`. */
  readonly export?: string | undefined;
  /** How long its modules may run, in milliseconds. Default ten seconds. */
  readonly timeLimitMs?: number;
  /** Memory that they may hold, in MiB. Default 256. */
  readonly memoryLimitMb?: number;
}

const TIME_LIMIT_MS = 10_000;

const MEMORY_LIMIT_MB = 256;

/** Characters of all that a package says of its actor. */
const ANSWER_MAX = 2 ** 20;

/** Characters of a name, or of what a permission is about. */
const NAME_MAX = 200;

/** Messages of an actor, and permissions of one kind. */
const LIST_MAX = 256;

/** Characters of why a package cannot be inspected. */
const WHY_MAX = 1000;

/**
 * Inspects the actor of a package: its modules are fetched and hashed, and run in a process without
 * permissions, within limits of time and memory. Its factory is never called.
 *
 * @param specifier `jsr:`, `npm:`, or an absolute URL.
 * @throws {TypeError} (as a rejection) when a module is not to be had, or exports no definition.
 * @throws {Error} (as a rejection) when it fails, or takes more time or memory than it may.
 *
 * @example
 * ```ts ignore
 * import { inspectActor } from "@troupe/troupe/actors";
 *
 * const { name, messages, integrity } = await inspectActor("jsr:@you/counter@1");
 * ```
 */
export async function inspectActor(
  specifier: string,
  options: InspectOptions = {},
): Promise<InspectedActor & { readonly hashed: HashedModule }> {
  const hashed = await hashModule(specifier, options);
  return { ...await inspectHashed(hashed, options), hashed };
}

/** The same for modules that are hashed: just these are run. */
export async function inspectHashed(
  { specifier: from, integrity, lock }: HashedModule,
  { export: name = "actor", timeLimitMs, memoryLimitMb }: InspectOptions = {},
): Promise<InspectedActor> {
  const denied: string[] = [];
  // Some of what it was denied is told when it ends.
  const said = await describe({ from, integrity, lock, export: name }, denied, {
    stepLimitMs: timeLimitMs ?? TIME_LIMIT_MS,
    memoryLimitMb: memoryLimitMb ?? MEMORY_LIMIT_MB,
  });
  return { ...said, denied };
}

async function describe(
  spec: PackageSpec<undefined, Inspection>,
  denied: string[],
  limits: Pick<SpawnOptions, "stepLimitMs" | "memoryLimitMb">,
): Promise<Omit<InspectedActor, "denied">> {
  const cannot = `Cannot inspect ${spec.from}`;
  await using system = createSystem({ onDeadLetter() {} });
  system.failed.catch(() => {}); // the question is answered with it
  system.subscribe((event) => {
    if (event.type === "denied") denied.push(`${event.what} "${inOneLine(event.on)}"`);
  });
  const inspects = { ...spec, inspects: true };
  const actor = system.spawn<undefined, Inspection>(inspects, undefined, {
    ...{ id: "inspected", isolate: "process", ...limits },
  });
  try {
    const answer = await system.ask(actor, { type: "Describe" }, { timeoutMs: Infinity });
    return readAnswer(cannot, answer);
  } catch (error) {
    if (!(error instanceof ActorFailedError)) throw error;
    const why = inOneLine(error.failure.error.message.slice(0, WHY_MAX));
    throw new Error(`${cannot}: ${why}`);
  }
}

/** What a package says, which may be anything. */
function readAnswer(
  cannot: string,
  answer: unknown,
): Omit<InspectedActor, "denied"> {
  if (typeof answer !== "string" || answer.length > ANSWER_MAX) {
    throw new RangeError(`${cannot}: it must say at most ${ANSWER_MAX} characters of itself`);
  }
  const said: unknown = JSON.parse(answer);
  const definition = typeof said === "object" && said !== null ? { ...said, create() {} } : said;
  checkDefinition(cannot, definition);
  const { name, protocol, messages, permissions = {} } = definition;
  const types = Object.keys(messages);
  const lists = Object.values(permissions).filter((value) => typeof value !== "boolean");
  const areLists = lists.every((list) => Array.isArray(list) && list.length <= LIST_MAX);
  const texts: unknown[] = [name, ...types, ...Object.keys(permissions), ...lists.flat()];
  const areShort = texts.every((text) => typeof text === "string" && text.length <= NAME_MAX);
  if (!areLists || !areShort || types.length > LIST_MAX) {
    throw new RangeError(
      `${cannot}: its names, messages and permissions must be at most ${LIST_MAX} of each kind, ` +
        `of at most ${NAME_MAX} characters`,
    );
  }
  return { name, protocol, messages, permissions };
}
