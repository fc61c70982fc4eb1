/**
 * Where the snapshots lie that a run is started again from: in memory, or on disk.
 *
 * [Note: one snapshot] In memory there is room for one: the next takes its place, tensor by tensor.
 * Should a worker die just then, the run is started again from what was before: a checkpoint, or what
 * the first weights come from. On disk the next is written beside the last, which is removed then.
 *
 * @module
 */

import { join } from "node:path";
import { elementCount, type StageState, type StateOf } from "../../../kernels/mod.ts";
import { type FileKind, fileName, KINDS } from "../../checkpoints/checkpoint_format.ts";
import { gatherState, type HeldState } from "../../checkpoints/tensors/held_state.ts";
import type { TensorSource } from "../../checkpoints/tensors/tensor_source.ts";
import { placedIn } from "../../checkpoints/write_checkpoint.ts";
import { newFiles, writeTensors } from "../../checkpoints/write_files.ts";
import {
  closeRendezvousFolder,
  lockFolder,
} from "../../runtime/transports/process/rendezvous_folder.ts";

/** Where snapshots lie. */
export type SnapshotPlace = "memory" | "disk";

/** Where snapshots may lie. */
export const SNAPSHOT_PLACES: readonly SnapshotPlace[] = ["memory", "disk"];

/** Unless asked otherwise, snapshots of larger states lie on disk. */
const MEMORY_BYTES = 2 ** 28;

/** What takes snapshots. */
export interface Snapshots {
  /** Steps from one to the next. */
  readonly everySteps: number;
  /** Whether the next may take the place of the last before it is whole. */
  readonly overwrites: boolean;
  /** Takes one. @param mayOverwrite whether the last is not needed any more. */
  take(state: HeldState, mayOverwrite: boolean): Promise<StateOf<TensorSource>>;
  /** Removes what is left of them. */
  close(): Promise<void>;
}

/**
 * Opens the snapshots of a run.
 *
 * @param asked where they are to lie. Default: in memory, but those that are large on disk, where the
 * program may write there.
 * @param directory where the user lets the run write; without it, a temporary folder is used.
 */
export function openSnapshots(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  shapes: HeldState["shapes"],
): Snapshots {
  const place = snapshotPlace(asked, directory, bytesOfState(shapes));
  return place === "disk" ? onDisk(directory) : inMemory();
}

/** Where the snapshots of a run lie. @param bytes of one. */
export function snapshotPlace(
  asked: SnapshotPlace | undefined,
  directory: string | undefined,
  bytes: number,
): SnapshotPlace {
  return asked ?? (bytes > MEMORY_BYTES && mayWrite(directory) ? "disk" : "memory");
}

/** Steps from one snapshot to the next: in memory a tenth of a second of copying in a minute of training. */
export const SNAPSHOT_EVERY: Readonly<Record<SnapshotPlace, number>> = { memory: 10, disk: 100 };

/** Bytes of all weights and moments. */
export function bytesOfState(shapes: HeldState["shapes"]): number {
  const all = KINDS.flatMap((kind) => [...shapes[kind].values()]);
  return all.reduce((sum, shape) => sum + 4 * elementCount(shape), 0);
}

/** Without a directory of the user's, who can tell where temporary folders are must have all. */
function mayWrite(directory: string | undefined): boolean {
  const where = directory === undefined ? {} : { path: directory };
  return (["read", "write"] as const).every((name) =>
    Deno.permissions.querySync({ name, ...where }).state === "granted"
  );
}

function inMemory(): Snapshots {
  let last: StageState | undefined;
  return {
    everySteps: SNAPSHOT_EVERY.memory,
    overwrites: true,
    async take(state, mayOverwrite) {
      return last = await gatherState(state, mayOverwrite ? last : undefined);
    },
    close: () => Promise.resolve(),
  };
}

/** Nobody waits for the disk: what survives the workers, not the machine, need not be durable. */
function onDisk(directory: string | undefined): Snapshots {
  let root: string | undefined, last: string | undefined, count = 0;
  const makeRoot = async () => {
    if (directory === undefined) {
      const path = await Deno.makeTempDir({ prefix: "troupe-snapshots-" });
      lockFolder(path);
      return path;
    }
    const own = join(directory, ".snapshots");
    // What a run has left that was ended from outside.
    await removeFolder(own);
    await Deno.mkdir(own, { recursive: true });
    return own;
  };
  return {
    everySteps: SNAPSHOT_EVERY.disk,
    overwrites: false,
    async take(state) {
      root ??= await makeRoot();
      const folder = join(root, String(count++));
      const taken = await writeSnapshot(folder, state).catch(async (error) => {
        await removeFolder(folder);
        throw error;
      });
      if (last) await removeFolder(last);
      last = folder;
      return taken;
    },
    close: () => Promise.resolve(root === undefined ? undefined : closeRendezvousFolder(root)),
  };
}

async function writeSnapshot(folder: string, state: HeldState): Promise<StateOf<TensorSource>> {
  await Deno.mkdir(folder, { recursive: true }); // its parents may have been removed
  using files = newFiles(Deno, folder);
  const write = async (kind: FileKind) =>
    placedIn(folder, [await writeTensors(files, fileName(kind), state, kind)]);
  return { weights: await write("model"), moments: await write("optimizer") };
}

async function removeFolder(path: string): Promise<void> {
  await Deno.remove(path, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}
