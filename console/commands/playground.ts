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
import { type Command, defineCommand, serveUntilSignal } from "./common.ts";

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
  async ({ flags }, context) => {
    const { playgroundPage } = await import("../playground/build.ts");
    const { servePage } = await import("../dashboard/serve.ts");
    const { port } = withDefaults(FLAGS, flags);
    const server = servePage(await playgroundPage(), port);
    return await serveUntilSignal("Playground", server, context);
  },
);
