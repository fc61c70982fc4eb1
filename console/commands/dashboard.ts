/**
 * `troupe dashboard` and `troupe playground`: serve the page of a run, from its folder, or of schedules.
 *
 * @module
 */

import { DASHBOARD_COMMAND_FLAGS } from "../flag.ts";
import { ensure, quoted } from "../terminal.ts";
import { type Command, defineCommand, serveUntilSignal } from "./common.ts";

/** Runs `troupe dashboard` until a signal ends it. */
export const dashboardCommand: Command = defineCommand({
  name: "dashboard",
  summary: "shows a run in a browser, also a running one",
  usage: ["RUN [flags]"],
  about: [
    "Shows a run in a browser: RUN is its folder, or its name below runs/. The page is served on this",
    "machine only, until Ctrl-C, and updates while the run continues. It shows the pipeline for runs",
    "with --dashboard or --trace, which record some of their steps.",
  ],
  flags: DASHBOARD_COMMAND_FLAGS,
  notes: ["Exit codes: 2 bad input; 130 ended by a signal."],
  needsArguments: true,
  isStrict: true,
  run: async ({ words, flags }, context) => {
    const received = quoted(words.join(" "));
    ensure(words.length === 1, "show a run", "there must be one folder or name", received);
    const { followRun } = await import("../dashboard/follow.ts");
    const { serveDashboard } = await import("../dashboard/serve.ts");
    const server = serveDashboard(await followRun(words[0]!), flags.port);
    return await serveUntilSignal("Dashboard", server, context);
  },
});

/** Runs `troupe playground` until a signal ends it. */
export const playgroundCommand: Command = defineCommand({
  name: "playground",
  summary: "serves a page to play with schedules in a browser",
  usage: ["[flags]"],
  about: [
    "The page computes, draws and compares two schedules while you change workers, micro-batches and",
    "costs. It is served on this machine only, until Ctrl-C. deno task docs writes it as one file.",
  ],
  flags: DASHBOARD_COMMAND_FLAGS,
  notes: ["Exit codes: 2 bad input; 130 ended by a signal."],
  takesWords: false,
  isStrict: true,
  run: async ({ flags }, context) => {
    const { playgroundPage } = await import("../playground/build.ts");
    const { servePage } = await import("../dashboard/serve.ts");
    const server = servePage(await playgroundPage(), flags.port);
    return await serveUntilSignal("Playground", server, context);
  },
});
