/**
 * The module of every actor that comes from a package: imports that in the isolate of the actor, and
 * nowhere else.
 *
 * @module
 */

import type { Context } from "../context_api.ts";
import type { Handlers } from "../handlers.ts";
import type { Message } from "../types.ts";
import { checkDefinition } from "./definition.ts";

/** What the actor is made of. */
export interface PackageInit {
  /** Specifier of its module. */
  readonly from: string;
  /** Name of the exported definition. */
  readonly export: string;
  /** The version of its protocol that the program speaks; undefined: any. */
  readonly protocol: number | undefined;
  /** What its factory is given. */
  readonly init: unknown;
}

/** Where to find {@linkcode packaged}. */
export const PACKAGED = { module: import.meta.url, export: "packaged" } as const;

/**
 * Makes the actor of a package.
 *
 * @throws {TypeError} when the module exports no definition.
 * @throws {RangeError} when it speaks another protocol.
 */
export async function packaged(
  ctx: Context<Message>,
  { from, export: name, protocol, init }: PackageInit,
): Promise<Handlers<Message>> {
  const { [name]: definition } = await import(from) as Record<string, unknown>;
  checkDefinition(`Cannot use "${name}" of ${from}`, definition);
  if (protocol !== undefined && definition.protocol !== protocol) {
    throw new RangeError(
      `Cannot use "${name}" of ${from}: its protocol must be version ${protocol}, received ${definition.protocol}`,
    );
  }
  return await definition.create(ctx, init);
}
