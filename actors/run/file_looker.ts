/**
 * An actor that says whether a rank sees the files that another one sees.
 *
 * @module
 */

import { delay } from "@std/async/delay";
import { checkInputFile } from "../../kernels/internal.ts";
import { checkWritable } from "../checkpoints/write.ts";
import type { ActorFactory, ActorSpec, Ask } from "../runtime/mod.ts";

/** Looks at files that must be there, and where it is to write; the answer is what is wrong. */
export type Look = {
  readonly type: "Look";
  /** Absolute paths. */
  readonly files: readonly string[];
  /** A folder of checkpoints. */
  readonly directory: string | undefined;
} & Ask<string | undefined>;

/** How a looker is made. */
export const FILE_LOOKER: ActorSpec<undefined, Look> = {
  module: import.meta.url,
  export: "fileLooker",
};

/** How often a file is looked for: a network's file system may take its time to tell of a new one. */
const MAX_LOOKS = 5;
const WAIT_MS = 200;

/** Makes a looker. */
export const fileLooker: ActorFactory<undefined, Look> = (ctx) => ({
  async Look({ files, directory }) {
    ctx.reply(await ctx.external(() => problemWith(files, directory)));
  },
});

async function problemWith(
  files: readonly string[],
  directory: string | undefined,
): Promise<string | undefined> {
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
