/**
 * Changes to a registry's file: whole or not at all, and what else stands in it stays as it is.
 *
 * @module
 */

import { dirname, join, resolve } from "node:path";
import { applyEdits, type FormattingOptions, modify } from "jsonc-parser";
import type { Entry } from "./entries.ts";
import { BYTES_MAX, entriesOf, FILE_NAMES, findRegistryFile } from "./registry_file.ts";
import { readText, replaceFile } from "./text_file.ts";

/**
 * The file that an entry is written to: the registry's own, else a new `troupe.json` beside the
 * nearest configuration of Deno, or in the folder itself.
 */
export function fileToEdit(folder: string): string {
  const found = findRegistryFile(folder);
  if (found) return found.path;
  for (let at = resolve(folder);; at = dirname(at)) {
    const isProject = FILE_NAMES.some((name) => readText(join(at, name), BYTES_MAX) !== undefined);
    if (isProject) return join(at, FILE_NAMES[0]);
    if (dirname(at) === at) return join(resolve(folder), FILE_NAMES[0]);
  }
}

/**
 * Writes an entry, or removes it where it is undefined. Comments and formatting stay.
 *
 * @throws {SyntaxError} (as a rejection) when that cannot be done without harm to the rest.
 */
export async function editEntry(
  path: string,
  name: string,
  entry: Entry | undefined,
): Promise<void> {
  const text = readText(path, BYTES_MAX) ?? "{}\n", before = entriesOf(path, text) ?? {};
  const formattingOptions = formattingOf(text);
  const edited = applyEdits(text, modify(text, ["actors", name], entry, { formattingOptions }));
  const { [name]: _, ...others } = before;
  const wanted = entry ? { ...others, [name]: entry } : others;
  if (!isSame(wanted, path, edited)) {
    throw new SyntaxError(
      `Cannot write ${path}: its text must be simple enough to be edited by a program; ` +
        `please write the entry "${name}" by hand`,
    );
  }
  await replaceFile(path, edited.endsWith("\n") ? edited : `${edited}\n`);
}

function isSame(wanted: Readonly<Record<string, Entry>>, path: string, text: string): boolean {
  try {
    return sorted(entriesOf(path, text) ?? {}) === sorted(wanted);
  } catch {
    return false;
  }
}

const sorted = (entries: Readonly<Record<string, Entry>>): string =>
  JSON.stringify(Object.entries(entries).sort(([one], [other]) => one < other ? -1 : 1));

/** As the text is indented already; two blanks where it says nothing. */
function formattingOf(text: string): FormattingOptions {
  const [, indent = "  "] = /\n([\t ]+)\S/.exec(text) ?? [];
  return { insertSpaces: indent[0] !== "\t", tabSize: indent.length, eol: "\n" };
}
