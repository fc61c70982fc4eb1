/**
 * `troupe actors`: lists, inspects, adds and verifies actors and parts by name.
 *
 * @module
 */

import {
  checkNewComponent,
  type Component,
  type ComponentKind,
  type HashedModule,
  hashModule,
  type InspectedActor,
  inspectHashed,
  openRegistry,
  packageVersion,
  prepareComponent,
  type Registry,
  removeComponent,
} from "../../actors/mod.ts";
import { didYouMean } from "../../actors/options/option.ts";
import { COMPONENT_KINDS } from "../../actors/registry/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import type { CommandContext } from "../command.ts";
import { type CommandSyntax, COMMON_FLAGS, type GivenFlags, VERSION } from "../flag.ts";
import { answersItself, helpOf, parseArguments } from "../parse.ts";
import { inOneLine, print, quoted } from "../terminal.ts";

/** The flags of `troupe actors`. */
const ACTORS_FLAGS = {
  kind: {
    kind: "choice",
    choices: COMPONENT_KINDS,
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
const ACTORS_WORDS = {
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

/** Characters of a schema that are shown. */
const SCHEMA_MAX = 160;

/** Characters of a hash in a list. */
const HASH_SHOWN = "sha256-".length + 8;

/** What was found out of a package, as `--json` prints it. */
function inspectionRecord(hashed: HashedModule, actor: InspectedActor | undefined) {
  const { specifier, integrity, modules, npm } = hashed;
  return {
    specifier,
    version: packageVersion(hashed),
    ...actor,
    integrity,
    modules: modules.map((one) => one.specifier),
    npm: npm.map(({ id }) => id),
  };
}

/** The same for readers. */
function showInspection(hashed: HashedModule, actor: InspectedActor | undefined): string {
  const { integrity, modules, npm, specifier } = hashed, version = packageVersion(hashed);
  const rows = [
    ...actor ? [["actor", `${actor.name}, protocol ${actor.protocol}`]] : [],
    ["from", specifier],
    ...version === undefined ? [] : [["version", version]],
    ...actor ? actorRows(actor) : [],
    ["hash", integrity],
    ["modules", `${modules.length}${npm.length > 0 ? `, ${npm.length} packages of npm` : ""}`],
  ];
  return formatTable(rows, { left: [0, 1] }).map(inOneLine).join("\n");
}

function actorRows({ messages, permissions }: InspectedActor): string[][] {
  const messageRows = Object.entries(messages).map(([type, schema]) => {
    const text = JSON.stringify(schema);
    return `${type} ${text.length > SCHEMA_MAX ? `${text.slice(0, SCHEMA_MAX)}…` : text}`;
  });
  const asked = Object.entries(permissions).map(([kind, value]) =>
    Array.isArray(value) ? `${kind} ${value.join(", ")}` : value ? kind : ""
  ).filter(Boolean);
  return [
    ...labelled("messages", messageRows, "none"),
    ...labelled("permissions", asked, "none"),
  ];
}

/** A row for each; the first has the label. */
const labelled = (label: string, texts: readonly string[], none: string): string[][] =>
  (texts.length > 0 ? texts : [none]).map((text, i) => [i === 0 ? label : "", text]);

/** All parts, a line for each. */
function showComponents(parts: readonly Component[]): string {
  const rows = parts.map(({ name, kind, from, integrity, isBuiltIn }) => [
    name,
    kind,
    isBuiltIn ? "built in" : integrity?.slice(0, HASH_SHOWN) ?? "no hash",
    isBuiltIn ? "" : from,
  ]);
  return formatTable(rows, { left: [0, 1, 2, 3] }).map((line) => inOneLine(line.trimEnd()))
    .join("\n");
}

type Given = GivenFlags<typeof ACTORS_FLAGS>;

/** Runs `troupe actors`; returns the exit code. */
export async function actorsCommand(
  args: readonly string[],
  { begin }: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(ACTORS_SYNTAX)), 0;
  if (answersItself(args, ACTORS_SYNTAX)) return 0;
  const { words: [what = "", ...names], flags } = parseArguments(args, ACTORS_FLAGS, {
    takesWords: true,
  });
  checkWords(what, names);
  const [name = "", specifier = ""] = names;
  switch (what as keyof typeof ACTORS_WORDS) {
    case "list":
      return list(flags);
    case "inspect":
      return await inspect(name, flags, begin);
    case "add":
      return await add(name, specifier, flags, begin);
    case "remove":
      return print(`Removed ${name} from ${await removeComponent(name)}`), 0;
    case "verify":
      return await verify(names[0], flags, begin);
  }
}

function checkWords(what: string, names: readonly string[]): void {
  if (!Object.hasOwn(ACTORS_WORDS, what)) {
    const words = Object.keys(ACTORS_WORDS);
    throw new TypeError(
      `Cannot run ${quoted(`actors ${what}`)}: it must be one of ${words.join(", ")}${
        didYouMean(what, words)
      }`,
    );
  }
  const [least, most] = ACTORS_WORDS[what as keyof typeof ACTORS_WORDS];
  if (names.length >= least && names.length <= most) return;
  throw new TypeError(
    `Cannot ${what}: the number of words after it must be ${
      least === most ? least : `${least} or ${most}`
    }, received ${names.length}; run with --help to see which`,
  );
}

function list({ kind, json }: Given): number {
  const parts = openRegistry().list(kind);
  if (json) print(JSON.stringify(parts.map(({ lock: _, ...part }) => part)));
  else {print(
      showComponents(parts) || "No names so far: troupe actors add NAME SPECIFIER adds one.",
    );}
  return 0;
}

async function inspect(
  nameOrSpecifier: string,
  { kind = "actor", export: exported, json }: Given,
  begin: () => void,
): Promise<number> {
  const part = openRegistry().find(kind, nameOrSpecifier);
  if (part.isBuiltIn) {
    const { name } = part;
    print(json ? JSON.stringify({ name, kind, isBuiltIn: true, version: VERSION }) : comes(part));
    return 0;
  }
  begin();
  const hashed = await hashModule(part.from, { lock: part.lock });
  const actor = await inspectComponent(hashed, kind, exported ?? part.export);
  print(
    json ? JSON.stringify(inspectionRecord(hashed, actor)) : showInspection(hashed, actor),
  );
  return 0;
}

/** Parts that are no actors are not run: they would need what a program may do. */
async function inspectComponent(
  hashed: HashedModule,
  kind: ComponentKind,
  exported: string | undefined,
): Promise<InspectedActor | undefined> {
  return kind === "actor" ? await inspectHashed(hashed, { export: exported }) : undefined;
}

async function add(
  name: string,
  specifier: string,
  { kind = "actor", export: exported, replace, json }: Given,
  begin: () => void,
): Promise<number> {
  const given = { name, specifier, kind, export: exported, replace };
  checkNewComponent(given);
  begin();
  const prepared = await prepareComponent(given);
  const { hashed, path, part } = prepared;
  const actor = await inspectComponent(hashed, kind, exported);
  await prepared.write();
  if (json) print(JSON.stringify({ ...part, lock: undefined, path }));
  else print(`${showInspection(hashed, actor)}\nAdded ${name} to ${inOneLine(path)}`);
  return 0;
}

async function verify(
  name: string | undefined,
  { kind, json }: Given,
  begin: () => void,
): Promise<number> {
  const registry = openRegistry(), all = registry.list(kind);
  const parts = name === undefined
    ? all.filter(({ isBuiltIn }) => !isBuiltIn)
    : [all.find((part) => part.name === name) ?? registry.find(kind ?? "actor", name)];
  begin();
  let code = 0;
  for (const part of parts) {
    const { said, ...verdict } = await verdictOn(part, registry);
    print(json ? JSON.stringify(verdict) : inOneLine(said));
    if (!verdict.isIntact) code = 1;
  }
  if (parts.length === 0 && !json) print("No names to verify.");
  return code;
}

/** What a part's modules are now, as `--json` prints it, and in words. */
async function verdictOn(part: Component, registry: Registry) {
  const { name, integrity, isBuiltIn } = part;
  if (isBuiltIn) return { name, isIntact: true, said: comes(part) };
  const found = await registry.verify(part).catch((error: Error) => error);
  if (found instanceof Error) {
    const error = found.message;
    return { name, isIntact: false, integrity, error, said: `${name}: ${error}` };
  }
  const { isIntact, integrity: received } = found;
  const said = !isIntact
    ? `differs: it must be ${integrity}, received ${received}`
    : `${integrity === undefined ? "has no hash to be compared with" : "intact"}, ${received}`;
  return { name, isIntact, integrity, received, said: `${name}: ${said}` };
}

const comes = ({ name, kind }: Component): string => `${name}: ${kind} of ${VERSION} itself`;
