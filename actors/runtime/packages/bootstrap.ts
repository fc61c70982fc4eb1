/**
 * The module of every actor that comes from a package: imports that in the isolate of the actor, and
 * nowhere else.
 *
 * @module
 */

import type { Context } from "../context_api.ts";
import type { Handlers } from "../handlers.ts";
import type { Ask, Message } from "../types.ts";
import { handlersOf } from "../actor/methods.ts";
import { checkDefinition } from "./definition.ts";
import type { Lock } from "./module_graph.ts";

/** What the actor is made of. */
export interface PackageInit {
  /** Specifier of its module. */
  readonly from: string;
  /** Name of the exported definition. */
  readonly export: string;
  /** The version of its protocol that the program speaks; undefined: any. */
  readonly protocol: number | undefined;
  /** The hash that its modules must have; undefined: any, or whoever confines it has looked. */
  readonly integrity: string | undefined;
  /** Versions that were chosen for what it imports. */
  readonly lock: Lock | undefined;
  /** What its factory is given. */
  readonly init: unknown;
}

/**
 * What looks at the modules of a package. Not imported by a specifier that is written out: it would
 * be among the modules of a process that is confined, which neither needs it nor may load what it
 * imports.
 */
async function looking(): Promise<
  typeof import("./hash_module.ts") & typeof import("./module_graph.ts")
> {
  const [hash, graph] = await Promise.all(
    ["./hash_module.ts", "./module_graph.ts"].map((path) => import(import.meta.resolve(path))),
  );
  return { ...hash, ...graph };
}

/** Where to find {@linkcode packaged}. */
export const PACKAGED = { module: import.meta.url, export: "packaged" } as const;

/** Where to find {@linkcode inspected}. */
export const INSPECTED = { module: import.meta.url, export: "inspected" } as const;

/**
 * Makes the actor of a package.
 *
 * @throws {TypeError} when the module exports no definition, or a message has no handler.
 * @throws {RangeError} when it has another hash, or speaks another protocol.
 */
export async function packaged(
  ctx: Context<Message>,
  { from, export: name, protocol, integrity, lock, init }: PackageInit,
): Promise<Handlers<Message>> {
  const cannot = `Cannot use "${name}" of ${from}`;
  // What is imported where it is needed costs nothing to isolates without packages.
  if (integrity !== undefined) {
    const { checkIntegrity, readGraph } = await looking();
    await checkIntegrity(await readGraph(from, { lock }), integrity);
  }
  const { [name]: definition } = await import(from) as Record<string, unknown>;
  checkDefinition(cannot, definition);
  if (protocol !== undefined && definition.protocol !== protocol) {
    throw new RangeError(
      `${cannot}: its protocol must be version ${protocol}, received ${definition.protocol}`,
    );
  }
  const { behindDoor } = await import("./message_door.ts");
  const made = handlersOf(ctx.self.id, name, await definition.create(ctx, init));
  return behindDoor(cannot, definition, made);
}

/** What an actor is asked that stands for a package. */
export type Inspection = { readonly type: "Describe" } & Ask<string>;

/** Imports a package and tells what it exports, as JSON; its factory is never called. */
export async function inspected(
  ctx: Context<Inspection>,
  { from, export: name }: PackageInit,
): Promise<Handlers<Inspection>> {
  const exported = await import(from) as Record<string, unknown>;
  return {
    Describe() {
      checkDefinition(`Cannot use "${name}" of ${from}`, exported[name], Object.keys(exported));
      const { name: called, protocol, messages, permissions } = exported[name];
      ctx.reply(JSON.stringify({ name: called, protocol, messages, permissions }));
    },
  };
}
