/**
 * The arguments of `troupe train` with those of its `--config` before them.
 *
 * @module
 */

import { type ConfigFile, readConfigFile } from "../flags/config_file.ts";
import { rawArguments } from "../flags/parse.ts";
import { TRAIN_FLAGS } from "./train_flags.ts";

/** What is asked for, in a file and on the command line. */
export interface Asked {
  /** All arguments: those of the file first, as those that are typed win. */
  readonly args: readonly string[];
  /** The file. */
  readonly config: ConfigFile | undefined;
}

/** The file of flags that is named, and all arguments: what it says, then what was typed. */
export function withConfig(args: readonly string[]): Asked {
  const { flags } = rawArguments(args, TRAIN_FLAGS), { config: path } = flags;
  if (path === undefined) return { config: undefined, args };
  const config = readConfigFile(String(path), TRAIN_FLAGS), typed = Object.keys(flags);
  const said = config.args.filter((arg) => !typed.some((name) => displaces(name, arg)));
  return { config, args: [...said, ...args] };
}

/** Flags that cannot stand beside another: where it is typed, those of a file give way. */
const DISPLACED: Readonly<Record<string, readonly string[]>> = {
  text: ["tokens", "data"],
  tokens: ["text", "data"],
  data: ["text", "tokens"],
  schedule: ["schedule-file"],
  "schedule-file": ["schedule", "workers", "micro-batches"],
  device: ["adapters"],
  adapters: ["device"],
};

const displaces = (typed: string, arg: string): boolean =>
  [typed, ...DISPLACED[typed] ?? []].some((name) => arg.startsWith(`--${name}=`));
