/** A copy of Deno's cache for packages on demand, with one edited file. */

import { dirname, join, relative, sep } from "node:path";

/** The folders of Deno for packages and compiled code. */
export async function denoFolder(): Promise<string> {
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output();
  return JSON.parse(new TextDecoder().decode(stdout)).denoDir;
}

/**
 * Makes such a cache. Nothing can be imported from it: what is beside the file is linked to.
 *
 * @param folder an empty folder: what DENO_DIR must name.
 * @param path the file's path in the true cache.
 * @param edit changes a copy of it, or removes it, or adds another beside it.
 */
export async function editedCache(
  folder: string,
  path: string,
  edit: (copy: string) => Promise<void>,
): Promise<void> {
  const cache = await denoFolder(), names = relative(cache, path).split(sep);
  let from = cache, to = folder;
  for (const name of names) {
    for await (const entry of Deno.readDir(from)) {
      const [source, copy] = [join(from, entry.name), join(to, entry.name)];
      if (entry.name === name) continue;
      if (entry.isDirectory) await Deno.symlink(source, copy);
      else if (from !== cache) await Deno.copyFile(source, copy); // not Deno's databases
    }
    [from, to] = [join(from, name), join(to, name)];
    if (from !== path) await Deno.mkdir(to);
  }
  await Deno.copyFile(path, to);
  await edit(to);
}

/** Changes one bit in the middle of a file. */
export async function changeBit(path: string): Promise<void> {
  using file = await Deno.open(path, { read: true, write: true });
  const middle = (await file.stat()).size >> 1, byte = new Uint8Array(1);
  await file.seek(middle, Deno.SeekMode.Start);
  await file.read(byte);
  byte[0]! ^= 1;
  await file.seek(middle, Deno.SeekMode.Start);
  await file.write(byte);
}

/** Adds a file beside another. */
export const addBeside = (name: string) => (path: string) =>
  Deno.writeTextFile(join(dirname(path), name), "");
