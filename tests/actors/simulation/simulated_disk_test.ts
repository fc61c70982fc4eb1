/** The simulated disk: synced changes survive, others only if POSIX allows it. */

import assert from "node:assert/strict";
import fc from "../../fast_check.ts";
import { substream } from "../../../actors/runtime/world.ts";
import { SimulatedDisk } from "../../../actors/simulation/disk.ts";
import LEFT from "../../golden/simulation/disk.json" with { type: "json" };

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

/** Makes a file whose name and content are durable. */
const keep = async (disk: SimulatedDisk, path: string, content = "") => {
  await write(disk, path, content, true);
  await sync(disk, path.slice(0, path.lastIndexOf("/")) || "/");
};

const writeTwice = async (disk: SimulatedDisk) => {
  await keep(disk, "/file");
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
const nameOf = async (disk: SimulatedDisk) => {
  const [name] = await names(disk, "/");
  return `${name}: ${await text(disk, `/${name}`)}`;
};

const renameTwice = async (disk: SimulatedDisk) => {
  await keep(disk, "/a");
  await disk.rename("/a", "/b");
  await disk.rename("/b", "/c");
};

const syncInside = async (disk: SimulatedDisk) => {
  await disk.mkdir("/a/b", { recursive: true });
  await keep(disk, "/a/b/file", "synced");
};

const writeAcross = async (disk: SimulatedDisk) => {
  await keep(disk, "/file", "aa");
  using file = await disk.open("/file", { write: true });
  await file.seek(2, 0);
  await file.write(bytes("bbbb"));
};

const look = (disk: SimulatedDisk) => text(disk, "/file");

const ENDS: readonly [title: string, ...Parameters<typeof ends>][] = [
  ["a torn write is cut at a byte, and earlier writes are complete", "torn", writeTwice, look],
  ["reordered writes leave holes of zeros", "reordered", writeTwice, look],
  ["a write across two sectors may leave either", "reordered", writeAcross, look],
  ["a rename is durable whole, and may be before the bytes are", "reordered", renameWhole, nameOf],
  ["a rename of another rename does not survive alone", "reordered", renameTwice, namesOf],
  ["what a folder that was never durable holds is lost", "torn", syncInside, namesOf],
];

for (const [title, how, play, look] of ENDS) {
  const left = LEFT[title as keyof typeof LEFT];
  Deno.test(title, async () => assert.deepEqual(await ends(how, play, look), left));
}

Deno.test("names that are taken, missing or of another kind are refused", async () => {
  const disk = new SimulatedDisk();
  await disk.mkdir("/full/inner", { recursive: true });
  await disk.mkdir("/other");
  await write(disk, "/file", "text", false);
  const { AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied } = Deno.errors;
  using open = await disk.open("/file");
  const refused: readonly [Promise<unknown>, typeof NotFound | RegExp][] = [
    [write(disk, "/file", "", false), AlreadyExists],
    [disk.mkdir("/full"), AlreadyExists],
    [disk.open("/none"), NotFound],
    [disk.rename("/none", "/some"), NotFound],
    [disk.readFile("/full"), IsADirectory],
    [disk.readFile("/file/inner"), NotADirectory],
    [disk.rename("/other", "/full"), /Directory not empty/],
    [disk.remove("/full"), /Directory not empty/],
    [open.write(bytes("more")), PermissionDenied],
  ];
  for (const [operation, error] of refused) await assert.rejects(operation, error);
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
        const isThere = await disk.readFile(path).then(() => true, () => false);
        if (does === "keep" && !isThere) {
          await keep(disk, path, `${n}`);
          kept.set(path, `${n}`);
        } else if (does === "write" && !isThere) await write(disk, path, `${n}`, false);
        else if (isThere && (does === "rename" || does === "remove")) {
          await (does === "remove" ? disk.remove(path) : disk.rename(path, `${path}-${n}`));
          kept.delete(path);
        }
      }
      disk.failPower(how);
      disk.restart();
      for (const [path, content] of kept) assert.equal(await text(disk, path), content);
    },
  ));
});

Deno.test("a full disk refuses operations that need space, and continues", async () => {
  const disk = new SimulatedDisk({ fails: (operation) => operation === 1 ? "full" : undefined });
  await assert.rejects(write(disk, "/file", "text", false), /No space left on device/);
  await disk.remove("/file");
  await write(disk, "/file", "text", false);
  assert.equal(await text(disk, "/file"), "text");
});

Deno.test("without power every operation fails, and so do files that were open before", async () => {
  const disk = new SimulatedDisk();
  using file = await disk.open("/file", { write: true, createNew: true });
  disk.failPower("torn");
  await assert.rejects(disk.mkdir("/folder"), { name: "PowerFailureError" });
  disk.restart();
  await assert.rejects(file.write(bytes("late")), { name: "PowerFailureError" });
});
