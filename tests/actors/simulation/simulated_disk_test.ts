/** The simulated disk: what was synced survives, and of the rest whatever POSIX allows. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { substream } from "../../../actors/runtime/world/random.ts";
import { SimulatedDisk } from "../../../actors/simulation/mod.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = async (disk: SimulatedDisk, path: string) =>
  new TextDecoder().decode(await disk.readFile(path));
const names = (disk: SimulatedDisk, path: string) =>
  Array.fromAsync(disk.readDir(path), ({ name }) => name);

async function write(disk: SimulatedDisk, path: string, content: string, isSynced: boolean) {
  using file = await disk.open(path, { write: true, createNew: true });
  await file.write(bytes(content));
  if (isSynced) await file.sync();
}

async function sync(disk: SimulatedDisk, path: string) {
  using folder = await disk.open(path);
  await folder.sync();
}

/** All that may be left of what `play` does, over many seeds. */
async function ends(
  how: "torn" | "reordered",
  play: (disk: SimulatedDisk) => Promise<void>,
  look: (disk: SimulatedDisk) => Promise<string>,
): Promise<string[]> {
  const found = new Set<string>();
  for (let seed = 0; seed < 300; seed++) {
    const disk = new SimulatedDisk({ random: () => substream(seed, "disk"), sectorBytes: 4 });
    await play(disk);
    disk.failPower(how);
    disk.restart();
    found.add(await look(disk));
  }
  return [...found].sort();
}

const writeTwice = async (disk: SimulatedDisk) => {
  await write(disk, "/file", "", true);
  await sync(disk, "/");
  using file = await disk.open("/file", { write: true });
  await file.write(bytes("aaaa"));
  await file.write(bytes("bbbb"));
};

Deno.test("a torn write is cut at a byte, and what came before it is whole", async () => {
  assert.deepEqual(
    await ends("torn", writeTwice, (disk) => text(disk, "/file")),
    ["", "a", "aa", "aaa", "aaaa", "aaaab", "aaaabb", "aaaabbb", "aaaabbbb"],
  );
});

Deno.test("reordered writes leave holes of zeros", async () => {
  assert.deepEqual(
    await ends("reordered", writeTwice, (disk) => text(disk, "/file")),
    ["", "\0\0\0\0bbbb", "aaaa", "aaaabbbb"],
  );
});

Deno.test("a rename is durable whole or not at all, and may be before the bytes are", async () => {
  const play = async (disk: SimulatedDisk) => {
    await write(disk, "/new", "whole", false);
    await sync(disk, "/");
    await disk.rename("/new", "/name");
  };
  const look = async (disk: SimulatedDisk) => {
    const found = await names(disk, "/");
    return `${found}: ${await text(disk, `/${found[0]}`)}`;
  };
  assert.deepEqual(await ends("reordered", play, look), [
    ...["name: ", "name: \0\0\0\0e", "name: whol", "name: whole"],
    ...["new: ", "new: \0\0\0\0e", "new: whol", "new: whole"],
  ]);
});

Deno.test("what a folder that was never durable holds is lost, synced or not", async () => {
  const play = async (disk: SimulatedDisk) => {
    await disk.mkdir("/a/b", { recursive: true });
    await write(disk, "/a/b/file", "synced", true);
    await sync(disk, "/a/b");
  };
  const look = async (disk: SimulatedDisk) => `${await names(disk, "/")}`;
  assert.deepEqual(await ends("torn", play, look), ["", "a"]);
});

Deno.test("whatever is synced with its name survives", async () => {
  const step = fc.record({
    path: fc.constantFrom("/a", "/b", "/f/a", "/f/b"),
    does: fc.constantFrom("write", "keep", "rename", "remove"),
  });
  await fc.assert(fc.asyncProperty(
    fc.array(step, { maxLength: 12 }),
    fc.constantFrom("torn" as const, "reordered" as const),
    fc.integer(),
    async (steps, how, seed) => {
      const disk = new SimulatedDisk({ random: () => substream(seed, "disk") });
      await disk.mkdir("/f");
      await sync(disk, "/");
      /** Paths that are durable and were not touched since. */
      const kept = new Map<string, string>();
      for (const [n, { path, does }] of steps.entries()) {
        const folder = path.startsWith("/f") ? "/f" : "/";
        const isThere = await disk.readFile(path).then(() => true, () => false);
        if (does === "keep" && !isThere) {
          await write(disk, path, `${n}`, true);
          await sync(disk, folder);
          kept.set(path, `${n}`);
        } else if (does === "write" && !isThere) await write(disk, path, `${n}`, false);
        else if (isThere && (does === "rename" || does === "remove")) {
          if (does === "remove") await disk.remove(path);
          else await disk.rename(path, `${path}-${n}`);
          kept.delete(path);
        }
      }
      disk.failPower(how);
      disk.restart();
      for (const [path, content] of kept) assert.equal(await text(disk, path), content);
    },
  ));
});

Deno.test("a full disk refuses what needs room, and goes on", async () => {
  const disk = new SimulatedDisk({ fails: (operation) => operation === 1 ? "full" : undefined });
  await assert.rejects(write(disk, "/file", "text", false), /No space left on device/);
  await disk.remove("/file");
  await write(disk, "/file", "text", false);
  assert.equal(await text(disk, "/file"), "text");
});

Deno.test("without power nothing can be done, nor with a file that was open before", async () => {
  const disk = new SimulatedDisk();
  using file = await disk.open("/file", { write: true, createNew: true });
  disk.failPower("torn");
  await assert.rejects(disk.mkdir("/folder"), { name: "PowerFailureError" });
  disk.restart();
  await assert.rejects(file.write(bytes("late")), { name: "PowerFailureError" });
});
