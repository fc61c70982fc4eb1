/**
 * `troupe profile papers`: what three papers state in numbers, beside what Troupe makes of it.
 *
 * @module
 */

import { join } from "node:path";
import { machineFacts } from "../../actors/foresight/papers/machines/machines.ts";
import { modelsTable } from "../../actors/foresight/papers/models_table.ts";
import { papersTable } from "../../actors/foresight/papers/papers_table.ts";
import { paperProfiles } from "../../actors/foresight/papers/paper_profiles.ts";
import type { CommandContext } from "../command.ts";
import { answersItself } from "../flags/asked.ts";
import { type CommandSyntax, COMMON_FLAGS } from "../flags/command_syntax.ts";
import { withDefaults } from "../flags/flag.ts";
import { parseArguments } from "../flags/parse.ts";
import { inOneLine } from "../escape.ts";
import { print } from "../print.ts";
import { describeFacts, describeModels, describePapers } from "./describe_papers.ts";

const PAPERS_FLAGS = {
  format: {
    kind: "choice",
    choices: ["table", "json"],
    default: "table",
    help: "how to show it; json is one object",
  },
  profiles: {
    kind: "path",
    value: "FOLDER",
    help: "write the profiles of the papers' machines there instead",
  },
  ...COMMON_FLAGS,
} as const;

/** The declaration of `troupe profile papers`. */
export const PAPERS_SYNTAX: CommandSyntax = {
  name: "profile papers",
  summary: "figures of the papers beside what the simulator makes of them",
  usage: ["[flags]"],
  about: [
    "Every figure that the papers on Chimera, Hanayo and AxoNN state in numbers, beside what comes out",
    "here on machines that are built from what they state: each with its source, and each miss with",
    "its reason. What a constant is fitted to is told. It takes about half a minute.",
    "",
    "The machines are profiles, too, as troupe profile writes them: --profiles writes them down.",
  ],
  groups: [{ flags: PAPERS_FLAGS }],
};

/** Runs `troupe profile papers` with the arguments after these words; returns the exit code. */
export function papersCommand(args: readonly string[], { begin }: CommandContext): number {
  if (answersItself(args, PAPERS_SYNTAX)) return 0;
  const flags = withDefaults(PAPERS_FLAGS, parseArguments(args, PAPERS_FLAGS).flags);
  if (flags.profiles !== undefined) return writeProfiles(flags.profiles, begin);
  begin();
  const rows = papersTable(), models = modelsTable(), machines = machineFacts();
  if (flags.format === "json") print(JSON.stringify({ rows, models, machines }));
  else {
    const parts = [describePapers(rows), describeModels(models), describeFacts(machines)];
    print(parts.map((lines) => lines.join("\n")).join("\n\n"));
  }
  return 0;
}

/** Writes each profile into a folder that is made for them. */
function writeProfiles(folder: string, begin: CommandContext["begin"]): number {
  try {
    Deno.mkdirSync(folder);
  } catch (error) {
    throw new TypeError(
      `Cannot write profiles to ${inOneLine(folder)}: it must be a folder that can be made, ` +
        `received ${(error as Error).message}`,
    );
  }
  begin();
  for (const [name, profile] of paperProfiles()) {
    const path = join(folder, `${name}.json`);
    Deno.writeTextFileSync(path, JSON.stringify(profile, undefined, 2) + "\n");
    print(path);
  }
  return 0;
}
