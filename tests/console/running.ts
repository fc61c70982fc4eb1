/** A command that is met while it runs: by Ctrl-C, or by something worse. */

import assert from "node:assert/strict";
import { delay } from "@std/async/delay";
import { HANG_LIMIT_MS } from "../hang_limit.ts";
import { ENVIRONMENT, type Environment, type Outcome, ROOT } from "./command.ts";

/** The arguments of Deno that train. */
export const TRAIN = ["run", "-A", "cli.ts", "train"];

/** A command in a separate process group, as a terminal starts it. */
export class Running {
  readonly #child: Deno.ChildProcess;
  readonly #texts = { stdout: "", stderr: "" };
  readonly #read: Promise<unknown>;
  #wake = () => {};

  /**
   * @param isNohup whether it is started as `nohup` does: hang-ups are ignored.
   * @param env variables of its environment.
   */
  constructor(args: readonly string[], isNohup = false, env: Environment = {}) {
    const command = [Deno.execPath(), ...args];
    if (isNohup) command.unshift("sh", "-c", 'trap "" HUP; exec "$0" "$@"');
    this.#child = new Deno.Command(command[0]!, {
      args: command.slice(1),
      cwd: ROOT,
      env: { ...ENVIRONMENT, ...env },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      detached: true,
      signal: AbortSignal.timeout(HANG_LIMIT_MS),
    }).spawn();
    this.#read = Promise.all((["stdout", "stderr"] as const).map(async (name) => {
      for await (const text of this.#child[name].pipeThrough(new TextDecoderStream())) {
        this.#texts[name] += text;
        this.#wake();
      }
      this.#wake();
    }));
  }

  /** Waits until a pattern has been printed. */
  async printed(stream: "stdout" | "stderr", pattern: RegExp): Promise<void> {
    let isOver = false;
    const over = this.#read.then(() => isOver = true);
    while (!pattern.test(this.#texts[stream])) {
      assert.ok(!isOver, `${pattern} was never printed: ${JSON.stringify(this.#texts)}`);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await Promise.race([promise, over]);
    }
  }

  /** Standard output so far. */
  get stdout(): string {
    return this.#texts.stdout;
  }

  /** Standard error so far. */
  get stderr(): string {
    return this.#texts.stderr;
  }

  /** Its process. */
  get pid(): number {
    return this.#child.pid;
  }

  /** Sends Ctrl-C, or another signal, to the command alone, or as a terminal does to its group. */
  interrupt(to: "process" | "group", signal: Deno.Signal = "SIGINT"): void {
    Deno.kill(to === "group" ? -this.#child.pid : this.#child.pid, signal);
  }

  /** `kill -9`: the command alone, and nothing that it may do about it. */
  kill(): void {
    this.#child.kill("SIGKILL");
  }

  /**
   * Waits for the end, and makes sure that no process of the group outlives it.
   *
   * @param graceMs how long the others may take to notice that the command is gone.
   */
  async end(graceMs = 0): Promise<Outcome> {
    const { code } = await this.#child.status, killed = performance.now();
    await this.#read;
    while (this.#isGroupAlive()) {
      assert.ok(performance.now() - killed < graceMs, "no process may be left");
      await delay(50);
    }
    return { code, ...this.#texts };
  }

  #isGroupAlive(): boolean {
    try {
      Deno.kill(-this.#child.pid, "SIGCONT");
      return true;
    } catch {
      return false;
    }
  }
}
