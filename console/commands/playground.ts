/**
 * `troupe playground`: a page to play with schedules.
 *
 * @module
 */

import {
  type CommandSyntax,
  COMMON_FLAGS,
  DASHBOARD_COMMAND_FLAGS,
  withDefaults,
} from "../flag.ts";
import { print } from "../terminal.ts";
import { type Command, defineCommand } from "./common.ts";

const FLAGS = { ...DASHBOARD_COMMAND_FLAGS, ...COMMON_FLAGS } as const;

/** The declaration of `troupe playground`. */
export const PLAYGROUND_SYNTAX: CommandSyntax = {
  name: "playground",
  summary: "a page to play with schedules in a browser",
  usage: ["[flags]"],
  about: [
    "The page computes, draws and compares two schedules while you change workers, micro-batches and",
    "costs. It is served on this machine only, until Ctrl-C. deno task docs writes it as one file.",
  ],
  groups: [{ flags: FLAGS }],
  notes: ["Exit codes: 2 bad input; 130 ended by a signal."],
};

/** Runs `troupe playground` until a signal ends it. */
export const playgroundCommand: Command = defineCommand(
  PLAYGROUND_SYNTAX,
  FLAGS,
  { needsArguments: false, takesWords: false, isStrict: true },
  async ({ flags }, { begin, signal = new AbortController().signal }) => {
    const { playgroundPage } = await import("../playground/build.ts");
    const { servePage } = await import("../dashboard/serve.ts");
    const { port } = withDefaults(FLAGS, flags);
    await using server = servePage(await playgroundPage(), port);
    begin();
    begin(""); // Ctrl-C ends the page; no message is needed
    print(`Playground: ${server.url}`);
    await server.stay(signal);
    return 130;
  },
);
