/** Forged journals: changed, but with valid checksums and hashes. */

import assert from "node:assert/strict";
import type { System } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { beginJournal } from "../../../actors/simulation/journal_writer.ts";
import { Digest } from "../../../actors/simulation/digest.ts";
import {
  Checksum,
  hashedOf,
  type Journal,
  JournalReader,
  sumIn,
} from "../../../actors/simulation/journal.ts";
import { addStep, type StepRecord } from "../../../actors/simulation/recorder.ts";
import { playAsker } from "./players.ts";

/** Returns the text of a journal recorded while `play` runs. */
export async function journalOf(play: (path: string) => Promise<unknown>): Promise<string> {
  const path = await Deno.makeTempFile();
  try {
    await play(path);
    return await Deno.readTextFile(path);
  } finally {
    await Deno.remove(path);
  }
}

/** Returns the text of the journal of a system while `play` runs. */
export const systemJournal = (
  play: (system: System) => Promise<unknown>,
  options: Partial<Parameters<typeof beginJournal>[0]> = { payloads: true },
): Promise<string> =>
  journalOf(async (path) => {
    await using system = createSystem({ observer: await beginJournal({ path, ...options }) });
    await play(system);
  });

/** The module of the players. */
export const PLAYERS = new URL("./players.ts", import.meta.url).href;

/** The text of the journal of two real actors: one asks the other, which has state. */
export const realJournal = (isolate: "local" | "worker" | "process") =>
  systemJournal((system) => playAsker(system, isolate), { actors: [PLAYERS], payloads: true });

/** A line of a journal without its sum. */
export type Forged = Record<string, unknown>;

/** The lines of a journal, without their sums. */
export function recordsOf(text: string): Forged[] {
  return text.trimEnd().split("\n").map((line) => {
    const { sum: _, ...record } = JSON.parse(line);
    return record;
  });
}

/** Returns the text of a journal with these lines and valid sums. */
export function checksummed(records: readonly Forged[]): string {
  let header: string | undefined;
  const isolates = new Map<unknown, { checksum: Checksum; hash: Digest }>();
  return records.map((record) => {
    if (header === undefined) {
      const line = new Checksum().close(JSON.stringify(record));
      header = sumIn(line);
      return `${line}\n`;
    }
    const { isolate } = record;
    let one = isolates.get(isolate);
    if (!one) {
      one = { checksum: new Checksum(header, isolate as number), hash: new Digest() };
      isolates.set(isolate, one);
    }
    return `${one.checksum.close(JSON.stringify(hashed(record, one.hash)))}\n`;
  }).join("");
}

/** Returns a step with its correct running hash, if its fields have valid types. */
function hashed(record: Forged, hash: Digest): Forged {
  if (!("hash" in record)) return record;
  try {
    addStep(hash, hashedOf(record as unknown as StepRecord));
  } catch {
    return record;
  }
  return { ...record, hash: hash.toString() };
}

/** Parses the text of a journal. */
export function parseJournal(text: string, path = "journal"): Journal {
  const lines = text.split("\n"), reader = new JournalReader(path);
  const isTorn = lines.pop() !== "";
  for (const line of lines) reader.add(line);
  return reader.end(isTorn);
}

/** Returns the number of the line that a reader of journals refuses, or 0 if it refuses none. */
export function refusedLine(text: string): number {
  try {
    parseJournal(text);
    return 0;
  } catch (error) {
    assert.ok(error instanceof SyntaxError, `${error}`);
    const [, line] = /^Cannot read a journal: .*\bline (\d+)\b[^\n]*$/.exec(error.message) ?? [];
    assert.ok(line !== undefined || /its (format|version) must be/.test(error.message), `${error}`);
    return Number(line ?? 1);
  }
}
