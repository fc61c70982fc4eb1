/**
 * What else keeps the machine busy while something is measured.
 *
 * @module
 */

import process from "node:process";
import { readFileSync } from "node:fs";

/** Clock ticks in a second, as the Linux kernel shows them to programs. */
const TICKS_PER_SECOND = 100;

/** Seconds of all cores together in which they did not idle; undefined where Linux is not. */
function busySeconds(): number | undefined {
  if (Deno.build.os !== "linux") return undefined;
  const [, ...ticks] = readFileSync("/proc/stat", "utf8").split("\n", 1)[0]!.split(/\s+/);
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted as users already.
  const [user, nice, system, , , irq, softirq, steal] = ticks.map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND;
}

/**
 * Starts to watch the other programs.
 *
 * @returns how many cores they kept busy since then, on average; undefined where it is not known.
 */
export function watchOthers(): () => number | undefined {
  const read = () => {
    const { user, system } = process.cpuUsage();
    return { busy: busySeconds(), own: (user + system) / 1e6, at: performance.now() / 1000 };
  };
  const before = read();
  return () => {
    const after = read();
    if (before.busy === undefined || after.busy === undefined) return undefined;
    const others = after.busy - before.busy - (after.own - before.own);
    return Math.max(0, others / (after.at - before.at));
  };
}
