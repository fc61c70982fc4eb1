/**
 * Makes the tables of SIMULATION.md again, where they stand between their marks; all of them take
 * some minutes.
 *
 *     deno run -A bench/simulation_tables.ts [speed] [states] [bugs]
 *
 * @module
 */

import { print } from "../console/terminal.ts";
import { plantedBugs, speed, states } from "./simulation.ts";

const TABLES: Readonly<Record<string, () => Promise<string>>> = {
  speed,
  states,
  bugs: plantedBugs,
};

/** Puts what was made between the marks of its name. */
function replaced(text: string, name: string, made: string): string {
  const begin = `<!-- ${name}: begin -->\n`, end = `<!-- ${name}: end -->`;
  const from = text.indexOf(begin) + begin.length, to = text.indexOf(end);
  if (from < begin.length || to < from) {
    throw new SyntaxError(`Cannot write the table: SIMULATION.md must have the marks of ${name}`);
  }
  return `${text.slice(0, from)}\n${made}\n${text.slice(to)}`;
}

const names = Deno.args.length > 0 ? Deno.args : Object.keys(TABLES);
const unknown = names.find((name) => !Object.hasOwn(TABLES, name));
if (unknown !== undefined) {
  throw new RangeError(
    `Cannot make tables: each must be one of ${
      Object.keys(TABLES).join(", ")
    }, received ${unknown}`,
  );
}
const page = new URL("../SIMULATION.md", import.meta.url);
for (const name of names) {
  const made = await TABLES[name]!();
  await Deno.writeTextFile(page, replaced(await Deno.readTextFile(page), name, made));
  print(`SIMULATION.md has the table of ${name}`);
}
await new Deno.Command(Deno.execPath(), { args: ["fmt", "-q", page.pathname] }).output();
