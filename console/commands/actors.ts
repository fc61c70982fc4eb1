/**
 * `troupe actors`: lists, inspects, adds and verifies actors and parts by name.
 *
 * @module
 */

import {
  checkNewPart,
  type HashedModule,
  hashModule,
  type InspectedActor,
  inspectHashed,
  openRegistry,
  type Part,
  type PartKind,
  preparePart,
  type Registry,
  removePart,
} from "../../actors/mod.ts";
import { didYouMean } from "../../actors/run/options/did_you_mean.ts";
import { ACTORS_FLAGS, ACTORS_SYNTAX, ACTORS_WORDS } from "../actors/actors_syntax.ts";
import { inspectionRecord, showInspection, showParts } from "../actors/show_actor.ts";
import type { CommandContext } from "../command.ts";
import { inOneLine, quoted } from "../escape.ts";
import { answersItself } from "../flags/asked.ts";
import type { GivenFlags } from "../flags/flag.ts";
import { helpOf } from "../flags/help.ts";
import { parseArguments } from "../flags/parse.ts";
import { VERSION } from "../flags/version.ts";
import { print } from "../print.ts";

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
      return print(`Removed ${name} from ${await removePart(name)}`), 0;
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
  else print(showParts(parts) || "No names so far: troupe actors add NAME SPECIFIER adds one.");
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
  const actor = await inspectPart(hashed, kind, exported ?? part.export);
  print(
    json ? JSON.stringify(inspectionRecord(hashed, actor)) : showInspection(hashed, actor),
  );
  return 0;
}

/** Parts that are no actors are not run: they would need what a program may do. */
async function inspectPart(
  hashed: HashedModule,
  kind: PartKind,
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
  checkNewPart(given);
  begin();
  const prepared = await preparePart(given);
  const { hashed, path, part } = prepared;
  const actor = await inspectPart(hashed, kind, exported);
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
async function verdictOn(part: Part, registry: Registry) {
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

const comes = ({ name, kind }: Part): string => `${name}: ${kind} of ${VERSION} itself`;
