/** Runs commands one after another in this process; the last line says how each ended, as JSON. */

import type { Ask } from "../../actors/runtime/types.ts";
import { createSystem } from "../../actors/transports/system.ts";
import { openRegistry } from "../../actors/registry/registry.ts";
import { packageActor } from "../../actors/sandbox/host.ts";
import type { CommandContext } from "../../console/command.ts";
import { troupe } from "../../console/mod.ts";
import type { Outcome } from "../console/command.ts";
import { Capture } from "../console/command.ts";

/** Runs a command and captures its output. */
export async function quietly(command: (context: CommandContext) => Promise<number>) {
  using stdout = new Capture(Deno.stdout);
  using stderr = new Capture(Deno.stderr);
  let hasBegun = false;
  const { signal } = new AbortController(), begin = () => void (hasBegun = true);
  const [code, why] = await command({ begin, signal }).then(
    (code) => [code, ""] as const,
    ({ message }: Error) =>
      [
        hasBegun ? 1 : 2,
        `${message}
`,
      ] as const,
  );
  return { code, stdout: stdout.text, stderr: stderr.text + why, hasBegun };
}

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

/** Spawns the counter of a name, in a sandbox, and asks it. */
async function ask(name: string): Promise<Outcome> {
  const spec = packageActor<number, Counter>(openRegistry().spec(name));
  await using system = createSystem();
  system.failed.catch(() => {});
  const counter = system.spawn(spec, 40, { id: "counter" });
  system.send(counter, { type: "Add", by: 2 });
  const answer = await system.ask(counter, { type: "Read" }).catch((error) => String(error));
  return { code: 0, stdout: `${answer}`, stderr: "" };
}

/** The words of a command line, some of which may be quoted. */
const wordsOf = (line: string) =>
  line.match(/"[^"]*"|'[^']*'|\S+/g)!.map((word) => word.replace(/^(["'])(.*)\1$/, "$2"));

if (import.meta.main) {
  const outcomes: Outcome[] = [];
  for (const line of JSON.parse(Deno.args[0]!) as string[]) {
    const [first, ...rest] = wordsOf(line);
    if (first === "cd") Deno.chdir(rest[0]!);
    outcomes.push(
      first === "cd"
        ? { code: 0, stdout: "", stderr: "" }
        : first === "ask"
        ? await ask(rest[0]!)
        : await quietly((context) => troupe([first!, ...rest], context)),
    );
  }
  const bytes = new TextEncoder().encode(`${JSON.stringify(outcomes)}\n`);
  for (let done = 0; done < bytes.length;) done += Deno.stdout.writeSync(bytes.subarray(done));
  Deno.exit(0);
}
