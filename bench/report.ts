/**
 * Results of benchmarks, their tables, and the programs that are measured.
 *
 * @module
 */

import { cpus } from "node:os";
import { linesOf } from "../console/terminal.ts";
import { webgpuAdapters } from "../kernels/devices/webgpu/adapters.ts";
import { formatTable } from "../schedules/pictures/grid.ts";
import { type Round, type Spread, spread, spreadOf } from "./timing.ts";

/** Answers questions, one on each line of standard input, until it ends. */
export async function answer(
  questions: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  for await (const line of linesOf(Deno.stdin.readable)) {
    const found = JSON.stringify(await questions[line]!());
    await Deno.stdout.write(new TextEncoder().encode(`${found}\n`));
  }
}

/** Starts a module of this folder as a program that answers questions. */
export const startProgram = (module: string, ...args: readonly string[]) =>
  talkTo(
    new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", new URL(module, import.meta.url).href, ...args],
      stdin: "piped",
      stdout: "piped",
    }).spawn(),
  );

/** Opens a conversation with a program whose standard input and output are piped. */
export function talkTo(child: Deno.ChildProcess) {
  const writer = child.stdin.getWriter(), lines = linesOf(child.stdout);
  return {
    /** Returns the answer. @throws {Error} if the program has ended. */
    async ask<T>(question: string) {
      await writer.write(new TextEncoder().encode(`${question}\n`)).catch(() => {});
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`the program has ended at "${question}"`);
      return JSON.parse(value) as T;
    },
    /** Ends the program. */
    async close() {
      await writer.close().catch(() => {});
      await child.status;
      await lines.return();
    },
  };
}

/** Returns the parts of this machine that its speed depends on. */
export async function thisMachine() {
  const adapters = await webgpuAdapters().catch(() => ({ adapters: [] }));
  return {
    system: `${Deno.build.os} ${Deno.build.arch}`,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: navigator.hardwareConcurrency,
    /** Adapters that the webgpu device can use. */
    adapters: adapters.adapters.map(({ name, kind }) => `${name} (${kind})`),
    deno: Deno.version.deno,
    /** Mean number of runnable programs in the minute before. */
    load: Deno.loadavg()[0]!,
  };
}

/** Formats a machine as one line. */
export function machineText(machine: Awaited<ReturnType<typeof thisMachine>>): string {
  const { system, processor, cores, adapters, deno, load } = machine;
  const gpu = adapters.length > 0 ? adapters.join(", ") : "none";
  return `${processor}, ${cores} cores, ${system}; adapters: ${gpu}; Deno ${deno}; load ${
    load.toFixed(1)
  } at the start`;
}

/** @param rows cells, those of the head first. */
export function markdownTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |\n`).join("");
}

/** A bound of a figure. */
type Target = { readonly atLeast: number } | { readonly atMost: number };

/** A row of the table. */
export interface Row {
  /** The name of the figure. */
  readonly name: string;
  /** Of `measured`, such as `GFLOP/s` or `%`. */
  readonly unit: string;
  /** Absent if it could not be measured: `note` has the reason. */
  readonly measured?: Spread;
  /** Absent if the row only explains others. */
  readonly target?: Target;
  readonly note?: string;
}

/** Returns a function that makes rows; each figure is computed within each round. */
export const rowMaker = <Name extends string>(rounds: readonly Round<Name>[]) =>
(
  name: string,
  unit: string,
  figure: (ms: Round<Name>["ms"]) => number,
  more: Partial<Row> = {},
): Row => ({ name, unit, measured: spreadOf(rounds, figure), ...more });

/** Makes a row from some values. */
export const valueRow = (
  name: string,
  unit: string,
  values: readonly number[],
  more: Partial<Row> = {},
): Row => ({ name, unit, measured: spread(values), ...more });

/** Makes a row of what could not be measured. */
export const reasonRow = (name: string, error: unknown, unit = ""): Row => ({
  name,
  unit,
  note: error instanceof Error ? error.message : String(error),
});

/** Returns whether the median meets the target; undefined without a target or a measurement. */
export function isMet({ measured, target }: Row): boolean | undefined {
  if (!measured || !target) return undefined;
  return "atLeast" in target ? measured.median >= target.atLeast : measured.median <= target.atMost;
}

/** Formats a number with at least three digits. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function targetText({ target, unit }: Row): string {
  if (!target) return "";
  const [sign, value] = "atLeast" in target ? ["≥", target.atLeast] : ["≤", target.atMost];
  return `${sign} ${value} ${unit}`;
}

function cells(row: Row): string[] {
  const { measured } = row, met = isMet(row);
  return [
    `  ${row.name}`,
    measured ? `${digits(measured.median)} ${row.unit}` : "not measured",
    measured ? `${digits(measured.low)}–${digits(measured.high)}` : "",
    targetText(row),
    met === undefined ? "" : met ? "✓" : "✗",
    row.note ?? "",
  ];
}

const HEAD = ["", "median", "lowest–highest", "target", "", ""];

/** Formats the rows of a section as text. */
export function table(section: string, rows: readonly Row[]): string {
  const [head, ...lines] = formatTable([HEAD, ...rows.map(cells)], { left: [0, 4, 5] });
  return [head, section, ...lines].join("\n");
}

/** Formats the rows of a section as a Markdown table of BENCHMARKS.md. */
export function markdown(section: string, rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const [name, median, range, target, met, note] = cells(row);
    return [
      name!.trim().replace(/^(\w+: )? {2}/, "$1… "),
      median!,
      range!,
      `${target} ${met}`.trim(),
      note!,
    ];
  });
  const head = ["measured", "median", "lowest–highest", "target", ""];
  return `### ${section}\n\n${markdownTable([head, ...lines])}`;
}
