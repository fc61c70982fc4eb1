/**
 * The permission flags of a confined process: what was granted, and at most what the program has.
 *
 * @module
 */

import { resolve } from "node:path";
import type { Permissions } from "../confinement.ts";

/** The kinds of permissions, and how Deno calls what one is about. */
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

/** A kind of permission. */
export type Kind = keyof typeof KINDS;

/** What is granted of each kind: all, or these. */
export type Grants = Readonly<Record<Kind, true | readonly string[]>>;

/**
 * What a process is granted, by each kind; paths are absolute.
 *
 * @param id the actor's, for the sentence of a refusal.
 * @throws {TypeError} when a permission is of no kind, or no list of strings.
 * @throws {Deno.errors.NotCapable} when the program lacks it.
 */
export function grantsOf(id: string, permissions: Permissions): Grants {
  const cannot = `Cannot spawn "${id}":`;
  for (const [name, value] of Object.entries(permissions)) {
    if (!Object.hasOwn(KINDS, name)) {
      const known = Object.keys(KINDS).join(", ");
      throw new TypeError(`${cannot} its permissions must be of ${known}, received ${name}`);
    }
    const isList = Array.isArray(value) && value.every((one) => typeof one === "string" && one);
    if (value === undefined || typeof value === "boolean" || isList) continue;
    throw new TypeError(
      `${cannot} its permission ${name} must be true, false or a list of strings`,
    );
  }
  const entries = (Object.keys(KINDS) as Kind[]).map((kind) => {
    const { [kind]: granted = false } = permissions;
    const list = granted === true ? true : (granted || []).map((value) => absolute(kind, value));
    for (const value of list === true ? [undefined] : list) {
      if (isGranted(kind, value)) continue;
      throw new Deno.errors.NotCapable(
        `${cannot} it must be granted no more than this program has, which lacks ${kind}${
          value === undefined ? " as a whole" : ` of ${value}`
        }`,
      );
    }
    return [kind, list];
  });
  return Object.fromEntries(entries);
}

/**
 * The flags that grant just this.
 *
 * @throws {RangeError} when they cannot say it: they have commas between what they grant, and no way
 * to write one.
 */
export function grantFlags(grants: Grants): string[] {
  return Object.entries(grants).flatMap(([kind, list]) => {
    if (list === true) return [`--allow-${kind}`];
    // Without a word, some hosts may be imported from.
    if (list.length === 0) return kind === "import" ? ["--deny-import"] : [];
    const split = list.find((value) => value.includes(","));
    if (split === undefined) return [`--allow-${kind}=${list.join()}`];
    throw new RangeError(
      `Cannot grant ${kind}: its ${KINDS[kind as Kind]} must have no comma, received ${split}`,
    );
  });
}

/** Whether this program may do that itself. */
export function isGranted(kind: Kind, value?: string): boolean {
  const about = value === undefined ? {} : { [KINDS[kind]]: value };
  const descriptor = { name: kind, ...about } as Deno.PermissionDescriptor;
  const { state, partial } = Deno.permissions.querySync(descriptor);
  return state === "granted" && partial !== true;
}

function absolute(kind: Kind, value: string): string {
  return KINDS[kind] === "path" ? resolve(value) : value;
}
