/**
 * What `troupe actors` is told.
 *
 * @module
 */

import { PART_KINDS } from "../../actors/registry/mod.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";

/** The flags of `troupe actors`. */
export const ACTORS_FLAGS = {
  kind: {
    kind: "choice",
    choices: PART_KINDS,
    value: "KIND",
    help: "what it is for",
    otherwise: "actor; of all kinds where they are listed or verified",
  },
  export: {
    kind: "text",
    value: "NAME",
    help: "what its module exports for it",
    otherwise: "its kind",
  },
  replace: { kind: "switch", help: "add a name that another has, or that comes with Troupe" },
  json: { kind: "switch", help: "print JSON" },
  ...COMMON_FLAGS,
} as const;

/** What it does, by its first word, and how many words follow that: at least and at most. */
export const ACTORS_WORDS = {
  list: [0, 0],
  inspect: [1, 1],
  add: [2, 2],
  remove: [1, 1],
  verify: [0, 1],
} as const;

/** The declaration of `troupe actors`. */
export const ACTORS_SYNTAX: CommandSyntax = {
  name: "actors",
  summary: "lists, inspects, adds and verifies actors and parts by name",
  usage: [
    "list",
    "inspect SPECIFIER",
    "add NAME SPECIFIER [flags]",
    "remove NAME",
    "verify [NAME]",
  ],
  about: [
    "Names actors and parts of training. They stand, with hashes, in the nearest troupe.json, or",
    'deno.json with the key "actors"; versions of what they import in troupe.lock beside it.',
    "",
    "A SPECIFIER is jsr:@you/actor@1, npm:you-actor@1, a URL or a path that begins with ./",
    "The actor of a package is inspected in a process without permissions; other parts are fetched",
    "and hashed, and nothing of them is run.",
  ],
  words: Object.keys(ACTORS_WORDS),
  groups: [{ flags: ACTORS_FLAGS }],
  notes: [
    "Deno's environment says how modules are fetched: DENO_CERT, DENO_DIR, JSR_URL, HTTPS_PROXY.",
    "Exit codes: 0 done; 1 a hash differs, or modules are not to be had; 2 bad input.",
  ],
};
