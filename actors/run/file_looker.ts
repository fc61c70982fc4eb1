/**
 * An actor that checks whether a rank can access the files of another rank.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { checkInputFile } from "../../kernels/internal.ts";
import { checkWritable } from "../checkpoints/write.ts";
import type { ActorFactory, ActorSpec, Ask } from "../runtime/mod.ts";

/** Checks files to read and places to write; the answer is the problem, if any. */
export type Look = {
  readonly type: "Look";
  /** Absolute paths. */
  readonly files: readonly string[];
  /** A folder of checkpoints. */
  readonly directory: string | undefined;
} & Ask<string | undefined>;

/** The actor that checks files. */
export const FILE_LOOKER: ActorSpec<undefined, Look> = {
  module: import.meta.url,
  export: "fileLooker",
};

/** Number of attempts to find a file: a network file system can show a new file late. */
const MAX_LOOKS = 5;
const WAIT_MS = 200;

/** Makes a looker. */
export const fileLooker: ActorFactory<undefined, Look> = (ctx) => ({
  async Look(message) {
    ctx.reply(await ctx.external(() => problemWith(message)));
  },
});

async function problemWith({ files, directory }: Look): Promise<string | undefined> {
  for (let looks = 1;; looks++) {
    try {
      for (const path of files) checkInputFile(path);
      if (directory !== undefined) await checkWritable(directory);
      return undefined;
    } catch (error) {
      if (looks === MAX_LOOKS) return (error as Error).message;
      await delay(looks * WAIT_MS);
    }
  }
}
