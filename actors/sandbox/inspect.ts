/**
 * The description that a package gives of its actor, taken in a process without permissions. It comes
 * from a stranger: it is bounded, and checked.
 *
 * @module
 */

import { escapeControls, inOneLine } from "../runtime/types.ts";
import { messageOf } from "../runtime/failure.ts";
import { checkDefinition, type Permissions, type Schemas } from "./define.ts";
import type { HostFrame } from "./guest.ts";
import { type GraphOptions, type HashedModule, hashModule } from "./modules.ts";
import { grantsOf, type Port, start } from "./start.ts";

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
  /** Longest time that its modules may run, in milliseconds. Default 10,000. */
  readonly timeLimitMs?: number;
}

const TIME_LIMIT_MS = 10_000;

/** Characters of a description. */
const DESCRIPTION_MAX = 2 ** 20;

/** Characters of a name, or of the subject of a permission. */
const NAME_MAX = 200;

/** Messages of an actor, and permissions of one kind. */
const LIST_MAX = 256;

/** Characters of an error of a package. */
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

/** Inspects modules that are hashed: no others are run. */
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
 * Has a sandbox import its package, and returns the description of the actor.
 *
 * @throws {TypeError} (as a rejection) when it is not a definition.
 * @throws {RangeError} (as a rejection) when it is too large.
 * @throws {Error} (as a rejection) when a module fails or takes too long.
 */
export async function describe(
  port: Pick<Port, "exchange">,
  from: string,
  name: string,
  limitMs: number,
): Promise<InspectedActor> {
  const cannot = `Cannot use "${name}" of ${from}`;
  const frame: HostFrame = { kind: "load", from, export: name };
  const said = await port.exchange(frame, limitMs);
  if (typeof said !== "string") throw errorOf(said);
  if (said.length > DESCRIPTION_MAX) {
    throw new RangeError(
      `${cannot}: its description must have at most ${DESCRIPTION_MAX} characters`,
    );
  }
  const definition: unknown = { ...JSON.parse(said), create() {} };
  checkDefinition(cannot, definition);
  const { name: called, protocol, messages, permissions = {} } = definition;
  const types = Object.keys(messages), kinds = Object.keys(permissions);
  const lists = Object.values(permissions).filter((value) => typeof value !== "boolean");
  const areLists = lists.every((list) => Array.isArray(list) && list.length <= LIST_MAX);
  const areShort = [called, ...types, ...kinds, ...lists.flat()].every((text) =>
    typeof text === "string" && text.length <= NAME_MAX
  );
  if (areLists && areShort && types.length <= LIST_MAX) {
    return { name: called, protocol, messages, permissions };
  }
  throw new RangeError(
    `${cannot}: its names, messages and permissions must be at most ${LIST_MAX} of each kind, ` +
      `of at most ${NAME_MAX} characters`,
  );
}

/** Returns an error of a sandbox: its fields may be of any kind, and are shown to users. */
export function errorOf(fields: unknown): Error {
  const { name, message, stack } = Object(fields) as Record<string, unknown>;
  const text = (value: unknown) =>
    typeof value === "string" ? escapeControls(value.slice(0, 10 * WHY_MAX)) : "";
  return Object.assign(new Error(text(message)), {
    name: text(name) || "Error",
    stack: text(stack),
  });
}
