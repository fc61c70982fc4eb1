/**
 * Whether all ranks of a job have the files that each of them is to read, and the folder that each is
 * to write to: found out before the first step.
 *
 * @module
 */

import { join, resolve } from "node:path";
import { createSystem } from "../../runtime/mod.ts";
import { type MpiRunOptions, rankTransport } from "../mpi_run.ts";
import type { PreparedRun } from "../options/prepare_run.ts";
import { FILE_LOOKER, type Look } from "./file_looker.ts";

/** How long a rank may take to look, in milliseconds. */
const LOOK_MS = 60_000;

/**
 * Makes sure that every rank of a run sees the files from which its first weights come, and may write
 * to the folder of its checkpoints, unless rank 0 gathers all.
 *
 * @throws {RangeError} naming a rank that does not, and saying what to do.
 */
export async function checkShared(
  { state, checkpoint, mpi }: Pick<PreparedRun, "state" | "checkpoint" | "mpi">,
): Promise<void> {
  if (!mpi || mpi.gather) return;
  const ranks = [...new Set(mpi.ranks)].filter((rank) => rank > 0),
    { directory } = checkpoint ?? {};
  const sources = [...state.weights.values(), ...state.moments.values()];
  const files = [...new Set(sources.flatMap((source) => "path" in source ? [source.path] : []))];
  if (ranks.length === 0 || files.length === 0 && directory === undefined) return;
  const folder = directory === undefined ? undefined : resolve(directory);
  const token = folder && join(folder, `.shared-${crypto.randomUUID()}`);
  try {
    if (token) await Deno.writeFile(token, new Uint8Array(), { createNew: true });
    const look = { files: token ? [...files, token] : files, directory: folder };
    const problems = await lookFrom(ranks, mpi, look);
    const nth = problems.findIndex((problem) => problem !== undefined);
    if (nth < 0) return;
    throw new RangeError(
      `Cannot train with runtime mpi: every rank must see the files of rank 0, as in a folder that all hosts share, received on rank ${
        ranks[nth]
      }: ${problems[nth]}; with --gather rank 0 reads and writes for all`,
    );
  } finally {
    if (token) await Deno.remove(token).catch(() => {});
  }
}

/** What each rank says is wrong. */
async function lookFrom(
  ranks: readonly number[],
  options: MpiRunOptions,
  look: Pick<Look, "files" | "directory">,
): Promise<(string | undefined)[]> {
  const transport = await rankTransport(options, ranks);
  await using system = createSystem({ transport });
  const lookers = ranks.map((rank) =>
    system.spawn(FILE_LOOKER, undefined, { id: `looker-${rank}`, isolate: transport.name })
  );
  const ask = { timeoutMs: LOOK_MS };
  return await Promise.all(
    lookers.map((looker) => system.ask(looker, { type: "Look", ...look }, ask)),
  );
}
