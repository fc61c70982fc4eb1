/**
 * What a benchmark found, and the table that shows it.
 *
 * @module
 */

import { cpus } from "node:os";
import { webgpuAdapters } from "../kernels/mod.ts";
import { formatTable } from "../schedules/pictures/grid.ts";
import type { Spread } from "./timing.ts";

/** The lines of a stream of bytes. */
export async function* linesOf(bytes: ReadableStream<Uint8Array<ArrayBuffer>>) {
  let rest = "";
  for await (const text of bytes.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
}

/** Answers the questions of who has started this program, a line each, until there are no more. */
export async function answer(
  questions: Readonly<Record<string, () => Promise<object>>>,
): Promise<void> {
  for await (const line of linesOf(Deno.stdin.readable)) {
    const found = JSON.stringify(await questions[line]!());
    await Deno.stdout.write(new TextEncoder().encode(`${found}\n`));
  }
}

/** Questions to a program. */
export interface Conversation {
  /** What it answers. @throws {Error} when it has ended. */
  ask<T>(question: string): Promise<T>;
  /** Lets it end. */
  close(): Promise<void>;
}

/** Asks a program whose standard input and output are piped. */
export function talkTo(child: Deno.ChildProcess): Conversation {
  const writer = child.stdin.getWriter(), lines = linesOf(child.stdout);
  return {
    async ask<T>(question: string) {
      await writer.write(new TextEncoder().encode(`${question}\n`)).catch(() => {});
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`the program has ended at "${question}"`);
      return JSON.parse(value) as T;
    },
    async close() {
      await writer.close().catch(() => {});
      await child.status;
      await lines.return();
    },
  };
}

/** A machine, as far as speed depends on it. */
interface Machine {
  readonly system: string;
  readonly processor: string;
  readonly cores: number;
  /** Adapters that the webgpu device can use, software in place of a GPU named as such. */
  readonly adapters: readonly string[];
  readonly deno: string;
  /** Programs that wanted to compute, on average over the minute before. */
  readonly load: number;
}

/** This machine, now. */
export async function thisMachine(): Promise<Machine> {
  const adapters = await webgpuAdapters().catch(() => ({ adapters: [] }));
  return {
    system: `${Deno.build.os} ${Deno.build.arch}`,
    processor: cpus()[0]?.model.trim() ?? "unknown",
    cores: navigator.hardwareConcurrency,
    adapters: adapters.adapters.map(({ name, kind }) => `${name} (${kind})`),
    deno: Deno.version.deno,
    load: Deno.loadavg()[0]!,
  };
}

/** A machine in a line. */
export function machineText(machine: Machine): string {
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

/** A figure that must be reached. */
export type Target = { readonly atLeast: number } | { readonly atMost: number };

/** One line of the table. */
export interface Row {
  /** What was measured. */
  readonly name: string;
  /** Of `measured`, such as `GFLOP/s` or `%`. */
  readonly unit: string;
  /** Absent where it could not be measured: then `note` says why. */
  readonly measured?: Spread;
  /** What it must be; absent on a row that is there to understand the others. */
  readonly target?: Target;
  /** Said in words behind the figures. */
  readonly note?: string;
}

/** Whether the median meets the target; undefined where there is none, or nothing was measured. */
export function isMet({ measured, target }: Row): boolean | undefined {
  if (!measured || !target) return undefined;
  return "atLeast" in target ? measured.median >= target.atLeast : measured.median <= target.atMost;
}

/** A number with three figures or more. */
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

/** Sections of rows as text for a person. */
export function table(sections: ReadonlyMap<string, readonly Row[]>): string {
  const bodies = [...sections].map(([title, rows]) => [title, rows.map(cells)] as const);
  const all = [HEAD, ...bodies.flatMap(([, rows]) => rows)];
  const [head, ...lines] = formatTable(all, { left: [0, 4, 5] });
  const shown = bodies.flatMap(([title, rows]) => [title, ...lines.splice(0, rows.length)]);
  return [head, ...shown].join("\n");
}

/** Sections of rows as tables in Markdown, as BENCHMARKS.md has them. */
export function markdown(sections: ReadonlyMap<string, readonly Row[]>): string {
  const tables = [...sections].map(([title, rows]) => {
    const lines = rows.map((row) => {
      const [, median, range, target, met, note] = cells(row);
      return [
        name!.trim().replace(/^(\w+: )? {2}/, "$1… "),
        median!,
        range!,
        `${target} ${met}`.trim(),
        note!,
      ];
    });
    return `### ${title}\n\n${
      markdownTable([["measured", "median", "lowest–highest", "target", ""], ...lines])
    }`;
  });
  return tables.join("\n");
}
