/**
 * Measures each test file in a process: wall seconds, CPU seconds, and the tier that it belongs to.
 *
 *     deno task test:times [FILE_OR_FOLDER ...]
 *
 * Two files run at a time, those of `_alone_test.ts` one by one. The exit code is 1 if a file fails.
 *
 * @module
 */

import { print } from "../../console/terminal.ts";
import { filesBelow, ROOT } from "../repository.ts";
import { inLanes } from "../lanes.ts";
import { runTests } from "./test_process.ts";

/** The tier of a test file, by its name. */
const tierOf = (path: string): string => /_(slow|alone|deep)_test\.ts$/.exec(path)?.[1] ?? "quick";

if (import.meta.main) {
  const wanted = Deno.args.map((path) => path.replace(/^\.\//, ""));
  const files = filesBelow(ROOT).filter((path) =>
    path.endsWith("_test.ts") &&
    (wanted.length > 0 ? wanted.some((name) => path.startsWith(name)) : tierOf(path) !== "deep")
  );
  const rows: { path: string; tier: string; seconds: number; cpuSeconds: number }[] = [];
  const failed: string[] = [];
  const measure = async (path: string) => {
    const { isPassed, seconds, cpuSeconds } = await runTests(ROOT, [path]);
    rows.push({ path, tier: tierOf(path), seconds, cpuSeconds });
    if (!isPassed) failed.push(path);
  };
  const isAlone = (path: string) => tierOf(path) === "alone";
  await inLanes(files.filter((path) => !isAlone(path)), measure, 2);
  await inLanes(files.filter(isAlone), measure, 1);
  print("  wall s    CPU s  tier   file");
  for (const { path, tier, seconds, cpuSeconds } of rows.sort((a, b) => b.seconds - a.seconds)) {
    const [wall, cpu] = [seconds, cpuSeconds].map((value) => value.toFixed(1).padStart(8));
    print(`${wall} ${cpu}  ${tier.padEnd(5)}  ${path}${failed.includes(path) ? "  FAILED" : ""}`);
  }
  for (const tier of ["quick", "slow", "alone", "deep"]) {
    const own = rows.filter((row) => row.tier === tier);
    const sum = (key: "seconds" | "cpuSeconds") =>
      own.reduce((total, row) => total + row[key], 0).toFixed(0);
    if (own.length > 0) {
      print(`${tier}: ${own.length} files, ${sum("seconds")} s, ${sum("cpuSeconds")} s of CPU`);
    }
  }
  if (failed.length > 0) Deno.exit(1);
}
