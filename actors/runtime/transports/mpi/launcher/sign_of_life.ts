/**
 * What ranks and `troupe launch` tell each other, over what every launcher of MPI passes on: lines
 * among those of standard error, which it takes out again, and the standard input of rank 0.
 *
 * @module
 */

/** What the launch writes to rank 0 when the job is to end in good order. */
export const END_REQUEST = "end\n";

/** Where a rank stands: MPI is being opened, is open, is being closed, is closed. */
export type Phase = "joining" | "joined" | "leaving" | "left";

/** What a rank tells. */
export interface SignOfLife {
  readonly rank: number;
  readonly pid: number;
  readonly host: string;
  readonly phase: Phase;
}

/** Marks such lines: a control character, which no text of Troupe contains. */
const MARK = "\x16";

/** A sign as a line, so short that no other gets into it. */
const encodeSign = (sign: SignOfLife): string => `${MARK}${JSON.stringify(sign)}\n`;

/** Tells where this process stands. */
export function writeSign(sign: Pick<SignOfLife, "rank" | "phase">): void {
  const text = encodeSign({ ...sign, pid: Deno.pid, host: Deno.hostname() });
  try {
    Deno.stderr.writeSync(new TextEncoder().encode(text));
  } catch {
    // Nobody listens any more: the launcher is gone, or will be.
  }
}

/** The sign that a line is, if it is one. */
export function decodeSign(line: string): SignOfLife | undefined {
  if (!line.startsWith(MARK)) return undefined;
  try {
    return JSON.parse(line.slice(MARK.length));
  } catch {
    return undefined; // torn in two
  }
}
