/**
 * Actors and parts, shown: what a package says of itself is a stranger's text.
 *
 * @module
 */

import {
  type HashedModule,
  type InspectedActor,
  packageVersion,
  type Part,
} from "../../actors/mod.ts";
import { formatTable } from "../../schedules/pictures/grid.ts";
import { inOneLine } from "../escape.ts";

/** Characters of a schema that are shown. */
const SCHEMA_MAX = 160;

/** Characters of a hash in a list. */
const HASH_SHOWN = "sha256-".length + 8;

/** What was found out of a package, as `--json` prints it. */
export function inspectionRecord(hashed: HashedModule, actor: InspectedActor | undefined) {
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
export function showInspection(hashed: HashedModule, actor: InspectedActor | undefined): string {
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
export function showParts(parts: readonly Part[]): string {
  const rows = parts.map(({ name, kind, from, integrity, isBuiltIn }) => [
    name,
    kind,
    isBuiltIn ? "built in" : integrity?.slice(0, HASH_SHOWN) ?? "no hash",
    isBuiltIn ? "" : from,
  ]);
  return formatTable(rows, { left: [0, 1, 2, 3] }).map((line) => inOneLine(line.trimEnd()))
    .join("\n");
}
