/** Folders of tests. */

import type { RegisterTest } from "./devices.ts";

/** Makes a folder for a test and removes it afterwards. */
export async function inFolder<T>(test: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "troupe-" });
  try {
    return await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Registers a test that gets a temporary folder, where another way is given by that. */
export function folderTest(
  name: string,
  fn: (folder: string) => Promise<void>,
  test: RegisterTest = Deno.test,
): void {
  test(name, () => inFolder(fn));
}

/** The names in a folder, sorted. */
export const namesIn = async (folder: string): Promise<string[]> =>
  (await Array.fromAsync(Deno.readDir(folder), ({ name }) => name)).sort();
