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

const namesOf = async (disk: SimulatedDisk) => `${await names(disk, "/")}`;

const renameWhole = async (disk: SimulatedDisk) => {
  await write(disk, "/new", "whole", false);
  await sync(disk, "/");
  await disk.rename("/new", "/name");
};

/** A file and the name that it has. */
const lookAtFirst = async (disk: SimulatedDisk) => {
  const [name] = await names(disk, "/");
  return `${name}: ${await text(disk, `/${name}`)}`;
};

const renameTwice = async (disk: SimulatedDisk) => {
  await write(disk, "/a", "", true);
  await sync(disk, "/");
  await disk.rename("/a", "/b");
  await disk.rename("/b", "/c");
};

const syncInside = async (disk: SimulatedDisk) => {
  await disk.mkdir("/a/b", { recursive: true });
  await write(disk, "/a/b/file", "synced", true);
  await sync(disk, "/a/b");
};

const writeAcross = async (disk: SimulatedDisk) => {
  await write(disk, "/file", "aa", true);
  await sync(disk, "/");
  using file = await disk.open("/file", { write: true });
  await file.seek(2, 0);
  await file.write(bytes("bbbb"));
};

const look = (disk: SimulatedDisk) => text(disk, "/file");

const ENDS: readonly [title: string, ...Parameters<typeof ends>, left: string[]][] = [
  ["a torn write is cut at a byte, and what came before it is whole", "torn", writeTwice, look, [
    ...["", "a", "aa", "aaa", "aaaa", "aaaab", "aaaabb", "aaaabbb", "aaaabbbb"],
  ]],
  ["reordered writes leave holes of zeros", "reordered", writeTwice, look, [
    ...["", "\0\0\0\0bbbb", "aaaa", "aaaabbbb"],
  ]],
  ["a write across two sectors may leave either", "reordered", writeAcross, look, [
    ...["aa", "aa\0\0bb", "aabb", "aabbbb"],
  ]],
  [
    "a rename is durable whole or not at all, and may be before the bytes are",
    "reordered",
    renameWhole,
    lookAtFirst,
    [
      ...["name: ", "name: \0\0\0\0e", "name: whol", "name: whole"],
      ...["new: ", "new: \0\0\0\0e", "new: whol", "new: whole"],
    ],
  ],
  [
    "a rename of what has another name durably does not survive alone",
    "reordered",
    renameTwice,
    namesOf,
    [
      ...["a", "b", "c"],
    ],
  ],
  [
    "what a folder that was never durable holds is lost, synced or not",
    "torn",
    syncInside,
    namesOf,
    [
      ...["", "a"],
    ],
  ],
];

for (const [title, how, play, look, left] of ENDS) {
  Deno.test(title, async () => assert.deepEqual(await ends(how, play, look), left));
}

Deno.test("names that are taken, missing or of another kind are refused", async () => {
  const disk = new SimulatedDisk();
  await disk.mkdir("/full/inner", { recursive: true });
  await disk.mkdir("/other");
  await write(disk, "/file", "text", false);
  const { AlreadyExists, IsADirectory, NotADirectory, NotFound } = Deno.errors;
  await assert.rejects(write(disk, "/file", "", false), AlreadyExists);
  await assert.rejects(disk.mkdir("/full"), AlreadyExists);
  await assert.rejects(disk.open("/none"), NotFound);
  await assert.rejects(disk.rename("/none", "/some"), NotFound);
  await assert.rejects(disk.readFile("/full"), IsADirectory);
  await assert.rejects(disk.readFile("/file/inner"), NotADirectory);
  await assert.rejects(disk.rename("/other", "/full"), /Directory not empty/);
  await assert.rejects(disk.remove("/full"), /Directory not empty/);
  using file = await disk.open("/file");
  await assert.rejects(file.write(bytes("more")), Deno.errors.PermissionDenied);
  await disk.remove("/full", { recursive: true });
  assert.deepEqual([await names(disk, "/"), await look(disk)], [["file", "other"], "text"]);
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
