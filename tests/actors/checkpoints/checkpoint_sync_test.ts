/** What a checkpoint waits for: a name that is durable stands for content that is. */

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { writeCheckpoint } from "../../../actors/checkpoints/mod.ts";
import type { Disk, DiskFile } from "../../../actors/checkpoints/disk.ts";
import { inFolder } from "../../console/command.ts";

/** The true disk, with what is done to it written down: `write a`, `sync a`, `rename a b`. */
function recordingDisk(calls: string[]): Disk {
  const note = (what: string, ...paths: string[]) =>
    void calls.push([what, ...paths.map((path) => basename(path))].join(" "));
  return {
    readFile: (path) => Deno.readFile(path),
    readDir: (path) => Deno.readDir(path),
    mkdir: (path, options) => Deno.mkdir(path, options),
    remove: (path, options) => Deno.remove(path, options),
    async open(path, options?): Promise<DiskFile> {
      const file = await (options ? Deno.open(path, options) : Deno.open(path));
      const { write, sync, syncData } = file;
      return Object.assign(file, {
        write: (bytes: Uint8Array<ArrayBuffer>) => (note("write", path), write.call(file, bytes)),
        sync: () => (note("sync", path), sync.call(file)),
        syncData: () => (note("sync", path), syncData.call(file)),
      });
    },
    rename: (from, to) => (note("rename", from, to), Deno.rename(from, to)),
  };
}

Deno.test({
  name: "a checkpoint's files are synced, then their folder, then renamed, then the folder above",
  ignore: Deno.build.os === "windows", // which has no such call for folders
  fn: () =>
    inFolder(async (folder) => {
      const directory = join(folder, "runs"), calls: string[] = [];
      const state = {
        weights: new Map([["w", Float32Array.of(1, 2)]]),
        moments: new Map([["w.m", Float32Array.of(3, 4)]]),
      };
      const parameters = [{ name: "w", shape: [2] }];
      for (let time = 0; time < 2; time++) { // the second replaces the first
        calls.length = 0;
        const checkpoint = { step: 7, state, parameters, config: {} };
        await writeCheckpoint(directory, checkpoint, recordingDisk(calls));
        const named = calls.findIndex((call) => /^rename \.\S+ step-00000007$/.test(call));
        const temporary = calls[named]!.split(" ")[1]!;
        for (const name of ["model", "optimizer", "config", "manifest"]) {
          const last = calls.findLastIndex((call) => call.startsWith(`write ${name}.`));
          const synced = calls.findLastIndex((call) => call.startsWith(`sync ${name}.`));
          const whole = calls.lastIndexOf(`sync ${temporary}`);
          assert.ok(last >= 0 && last < synced, `${name} must be synced: ${calls}`);
          assert.ok(
            synced < whole && whole < named,
            `${name} must be in a synced folder: ${calls}`,
          );
        }
        assert.ok(calls.lastIndexOf("sync runs") > named, `the name must be synced: ${calls}`);
      }
    }),
});
