/** Runs a command in a terminal and returns the final screen. */

import { HANG_LIMIT_MS } from "../hang_limit.ts";
import { type Environment, ROOT } from "./command.ts";

/** Clears a row: the only control sequence that a command may use. */
export const CLEAR = "\r\x1b[2K";

/** Returns whether there is what makes a terminal. */
export const hasTerminals = Deno.build.os === "linux" &&
  await new Deno.Command("script", { args: ["--version"] }).output()
    .then(({ success }) => success, () => false);

/** Result of a command in a terminal. */
export interface Shown {
  readonly code: number;
  /** All that came to the terminal, whose line ends are of two characters. */
  readonly text: string;
  /** The rows that stand there. */
  readonly rows: readonly string[];
}

/** Options of a command in a terminal. */
export interface TerminalOptions {
  readonly columns: number;
  /** Once this has been shown, Ctrl-C is pressed. */
  readonly interruptAt?: RegExp;
  readonly env?: Environment;
}

/** Runs `troupe` in a terminal. */
export async function inTerminal(
  args: readonly string[],
  { columns, interruptAt, env = {} }: TerminalOptions,
): Promise<Shown> {
  const words = [Deno.execPath(), "run", "-q", "-A", "--no-check", "cli.ts", ...args];
  const set = Object.entries({ TERM: "xterm", DENO_NO_UPDATE_CHECK: "1", ...env })
    .map(([name, value]) => `${name}=${value}`);
  const quoted = [...set, ...words].map((word) => `'${word}'`).join(" ");
  const command = `stty cols ${columns} rows 24; exec env -u NO_COLOR ${quoted}`;
  const child = new Deno.Command("script", {
    args: ["--quiet", "--return", "--flush", "--command", command, "/dev/null"],
    cwd: ROOT,
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
    signal: AbortSignal.timeout(HANG_LIMIT_MS),
  }).spawn();
  const keys = child.stdin.getWriter();
  let text = "", isPressed = false;
  for await (const piece of child.stdout.pipeThrough(new TextDecoderStream())) {
    text += piece;
    if (isPressed || !interruptAt?.test(text)) continue;
    isPressed = true;
    await keys.write(Uint8Array.of(3));
  }
  const { code } = await child.status;
  await keys.close().catch(() => {});
  return { code, text, rows: rowsOf(text, columns) };
}

/** Returns the screen of a terminal that knows only carriage return and {@linkcode CLEAR}. */
function rowsOf(text: string, columns: number): string[] {
  const rows: string[][] = [[]];
  let at = 0;
  for (const [nth, piece] of text.split(CLEAR).entries()) {
    if (nth > 0) [rows[rows.length - 1], at] = [[], 0];
    for (const character of piece) {
      if (character === "\r") at = 0;
      else if (character === "\n") rows.push([]);
      else {
        if (at === columns) [at] = [0, rows.push([])];
        rows.at(-1)![at++] = character;
      }
    }
  }
  return rows.map((row) => Array.from(row, (one) => one ?? " ").join(""));
}
