/**
 * `troupe actors`: lists, inspects, adds and verifies actors and components by name.
 *
 * @module
 */

import {
  checkNewComponent,
  openRegistry,
  prepareComponent,
  type Registry,
  removeComponent,
} from "../../actors/registry/registry.ts";
import {
  type Component,
  type ComponentKind,
  packageVersion,
} from "../../actors/registry/registry_file.ts";
import { type HashedModule, hashModule } from "../../actors/sandbox/modules.ts";
import { type InspectedActor, inspectHashed } from "../../actors/sandbox/host.ts";
import { COMPONENT_KINDS } from "../../actors/registry/registry_file.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { type GivenFlags, VERSION } from "../flag.ts";
import { ensure, inOneLine, print } from "../terminal.ts";
import { checkWord, type Command, defineCommand } from "./common.ts";

/** The flags of `troupe actors`. */
const ACTORS_FLAGS = {
  kind: {
    kind: "choice",
    choices: COMPONENT_KINDS,
    value: "KIND",
    help: "kind of component",
    otherwise: "actor; all kinds for list and verify",
  },
  export: { kind: "text", help: "name of its export", otherwise: "its kind" },
  replace: { kind: "switch", help: "replace an existing or a built-in name" },
  json: { kind: "switch", help: "print JSON" },
} as const;

/** Subcommands with the fewest and the most words that follow them. */
const ACTORS_WORDS: Readonly<Record<string, readonly [least: number, most: number]>> = {
  list: [0, 0],
  inspect: [1, 1],
  add: [2, 2],
  remove: [1, 1],
  verify: [0, 1],
};

/** Maximum number of characters of a schema that are shown. */
const SCHEMA_MAX = 160;

/** Number of characters of a hash in a list. */
const HASH_SHOWN = "sha256-".length + 8;

/** Returns the contents of a package for `--json`. */
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

/** Returns the contents of a package as a table. */
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
  return [...labelled("messages", messageRows), ...labelled("permissions", asked)];
}

/** Returns a row for each text; the first has the label. */
const labelled = (label: string, texts: readonly string[]): string[][] =>
  (texts.length > 0 ? texts : ["none"]).map((text, i) => [i === 0 ? label : "", text]);

/** Returns a table with a line for each component. */
function showComponents(parts: readonly Component[]): string {
  const rows = parts.map(({ name, kind, from, integrity, isBuiltIn }) =>
    isBuiltIn
      ? [name, kind, "built in", ""]
      : [name, kind, integrity?.slice(0, HASH_SHOWN) ?? "no hash", from]
  );
  const lines = formatTable(rows, { left: [0, 1, 2, 3] });
  return lines.map((line) => inOneLine(line.trimEnd())).join("\n");
}

type Given = GivenFlags<typeof ACTORS_FLAGS>;

/** `troupe actors`. */
export const actorsCommand: Command = defineCommand({
  name: "actors",
  summary: "lists, inspects, adds and verifies actors and components by name",
  usage: [
    "list",
    "inspect SPECIFIER",
    "add NAME SPECIFIER [flags]",
    "remove NAME",
    "verify [NAME]",
  ],
  about: [
    "Names actors and components of training. Names and hashes are in the nearest troupe.json, or in a",
    'deno.json with the key "actors"; versions of imported packages are in troupe.lock next to it.',
    "",
    "A SPECIFIER is jsr:@you/actor@1, npm:you-actor@1, a URL or a path that starts with ./",
    "The actor of a package is inspected in a process without permissions; other components are",
    "fetched and hashed, but not run.",
  ],
  words: Object.keys(ACTORS_WORDS),
  flags: ACTORS_FLAGS,
  notes: [
    "Deno's environment variables apply to downloads of modules: DENO_CERT, DENO_DIR, JSR_URL, HTTPS_PROXY.",
    "Exit codes: 0 done; 1 a hash differs, or modules are not available; 2 bad input.",
  ],
  needsArguments: true,
  run: async ({ words: [what = "", ...names], flags }, { begin }) => {
    checkWord("actors", what, Object.keys(ACTORS_WORDS));
    const [least, most] = ACTORS_WORDS[what]!, count = names.length;
    const right = least === most ? least : `${least} or ${most}`;
    const must = `the number of words after it must be ${right}`;
    const received = `${count}; run with --help to see which`;
    ensure(count >= least && count <= most, what, must, received);
    const [name = "", specifier = ""] = names;
    if (what === "inspect") await inspect(name, flags, begin);
    else if (what === "add") await add(name, specifier, flags, begin);
    else if (what === "remove") print(`Removed ${name} from ${await removeComponent(name)}`);
    else if (what === "verify") return await verify(names[0], flags, begin);
    else list(flags);
  },
});

function list({ kind, json }: Given): void {
  const parts = openRegistry().list(kind);
  const text = json
    ? JSON.stringify(parts.map(({ lock: _, ...part }) => part))
    : showComponents(parts) || "No names so far: troupe actors add NAME SPECIFIER adds one.";
  print(text);
}

async function inspect(
  nameOrSpecifier: string,
  { kind = "actor", export: exported, json }: Given,
  begin: () => void,
): Promise<void> {
  const part = openRegistry().find(kind, nameOrSpecifier), { name } = part;
  if (part.isBuiltIn) {
    const record = { name, kind, isBuiltIn: true, version: VERSION };
    return print(json ? JSON.stringify(record) : builtInText(part));
  }
  begin();
  const hashed = await hashModule(part.from, { lock: part.lock });
  const actor = await inspectComponent(hashed, kind, exported ?? part.export);
  print(json ? JSON.stringify(inspectionRecord(hashed, actor)) : showInspection(hashed, actor));
}

/** Inspects an actor. Other components are not run, because they need the permissions of a program. */
const inspectComponent = async (
  hashed: HashedModule,
  kind: ComponentKind,
  exported: string | undefined,
) => kind === "actor" ? await inspectHashed(hashed, { export: exported }) : undefined;

async function add(
  name: string,
  specifier: string,
  { kind = "actor", export: exported, replace, json }: Given,
  begin: () => void,
): Promise<void> {
  const given = { name, specifier, kind, export: exported, replace };
  checkNewComponent(given);
  begin();
  const { hashed, path, component, write } = await prepareComponent(given);
  const actor = await inspectComponent(hashed, kind, exported);
  await write();
  if (json) print(JSON.stringify({ ...component, lock: undefined, path }));
  else print(`${showInspection(hashed, actor)}\nAdded ${name} to ${inOneLine(path)}`);
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
    const { text, ...record } = await verifyComponent(part, registry);
    print(json ? JSON.stringify(record) : inOneLine(text));
    if (!record.isIntact) code = 1;
  }
  if (parts.length === 0 && !json) print("No names to verify.");
  return code;
}

/** Compares the modules of a component with its hash; returns the record for `--json`, and its text. */
async function verifyComponent(part: Component, registry: Registry) {
  const { name, integrity, isBuiltIn } = part;
  if (isBuiltIn) return { name, isIntact: true, text: builtInText(part) };
  const found = await registry.verify(part).catch((error: Error) => error);
  if (found instanceof Error) {
    const error = found.message;
    return { name, isIntact: false, integrity, error, text: `${name}: ${error}` };
  }
  const { isIntact, integrity: received } = found;
  const outcome = !isIntact
    ? `differs: it must be ${integrity}, received ${received}`
    : `${integrity === undefined ? "has no hash to be compared with" : "intact"}, ${received}`;
  return { name, isIntact, integrity, received, text: `${name}: ${outcome}` };
}

const builtInText = ({ name, kind }: Component): string => `${name}: ${kind} of ${VERSION} itself`;
