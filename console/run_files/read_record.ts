/**
 * Reads `run.json`, which may be a stranger's: its version, and the kinds of what others rely on.
 *
 * @module
 */

import { join } from "node:path";
import { inOneLine, quoted } from "../escape.ts";
import { RUN_FILES, RUN_FORMAT, RUN_VERSION, type RunRecord } from "./run_record.ts";

/** The most bytes of such a file: a plan of some thousand stages. */
const BYTES_MAX = 2 ** 24;

type Values = Readonly<Record<string, unknown>>;

/**
 * The record of a run's folder.
 *
 * @param isAnyVersion whether another version will do, of which only that it is a run's is known.
 * @returns undefined where there is none, or what has its name is something else's.
 * @throws {SyntaxError} when it is of another version, or is not whole.
 */
export function readRecord(directory: string, isAnyVersion = false): RunRecord | undefined {
  const path = join(directory, RUN_FILES.record);
  let value: unknown;
  try {
    const { isFile, size } = Deno.lstatSync(path); // a link leads elsewhere
    if (!isFile || size > BYTES_MAX) return undefined;
    value = JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    const { NotFound, NotADirectory } = Deno.errors;
    if ([SyntaxError, NotFound, NotADirectory].some((kind) => error instanceof kind)) {
      return undefined;
    }
    throw error;
  }
  if (!isValues(value) || value.format !== RUN_FORMAT) return undefined;
  if (isAnyVersion) return value as unknown as RunRecord;
  const wrong = problemOf(value);
  if (wrong === undefined) return value as unknown as RunRecord;
  const [must, received] = wrong;
  throw new SyntaxError(
    `Cannot read ${inOneLine(path)}: its ${must}, received ${quoted(received)}`,
  );
}

const isValues = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What is not as it must be, and what it is. */
function problemOf(record: Values): readonly [must: string, received: unknown] | undefined {
  const { version, model, started, flags, data, schedule, plan, starts, end } = record;
  if (version !== RUN_VERSION) return [`version must be ${RUN_VERSION}`, version];
  const texts = { model, started };
  for (const [name, value] of Object.entries(texts)) {
    if (typeof value !== "string") return [`${name} must be a text`, value];
  }
  const records = { flags, data, schedule, plan, ...end !== undefined && { end } };
  for (const [name, value] of Object.entries(records)) {
    if (!isValues(value)) return [`${name} must be a record`, value];
  }
  if (!Array.isArray(starts) || !starts.every(isValues)) {
    return ["starts must be a list of records", starts];
  }
}
