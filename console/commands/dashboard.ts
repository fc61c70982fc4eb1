/**
 * `troupe dashboard`: the page of a run, from its folder.
 *
 * @module
 */

import type { CommandContext } from "../command.ts";
import {
  type CommandSyntax,
  COMMON_FLAGS,
  DASHBOARD_COMMAND_FLAGS,
  withDefaults,
} from "../flag.ts";
import { answersItself, helpOf, parseArguments } from "../parse.ts";
import { print, quoted } from "../terminal.ts";

const FLAGS = { ...DASHBOARD_COMMAND_FLAGS, ...COMMON_FLAGS } as const;

/** The declaration of `troupe dashboard`. */
export const DASHBOARD_SYNTAX: CommandSyntax = {
  name: "dashboard",
  summary: "shows a run in a browser, also while it goes on",
  usage: ["RUN [flags]"],
  about: [
    "RUN is the folder of a run, or its name below runs/. The page is served on this machine alone,",
    "until Ctrl-C, and follows a run that goes on. The pipeline is shown of runs with --dashboard or",
    "--trace, which keep some of their steps.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 2 bad input; 130 ended by a signal."],
};

/** Runs `troupe dashboard`, until it is ended by a signal. */
export async function dashboardCommand(
  args: readonly string[],
  { begin, signal }: CommandContext,
): Promise<number> {
  if (args.length === 0) return print(helpOf(DASHBOARD_SYNTAX)), 0;
  if (answersItself(args, DASHBOARD_SYNTAX)) return 0;
  const { words, flags } = parseArguments(args, FLAGS, { takesWords: true, isStrict: true });
  const [named, ...more] = words, { port } = withDefaults(FLAGS, flags);
  if (named === undefined || more.length > 0) {
    throw new TypeError(
      `Cannot show a run: there must be one folder or name, received ${quoted(words.join(" "))}`,
    );
  }
  const { followRun } = await import("../dashboard/follow.ts");
  const { serveDashboard } = await import("../dashboard/serve.ts");
  await using dashboard = serveDashboard(await followRun(named), port);
  begin();
  begin(""); // Ctrl-C ends it in good order, of which nothing need be said
  print(`Dashboard: ${dashboard.url}`);
  await dashboard.stay(signal);
  return 130;
}
