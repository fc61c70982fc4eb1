/** Servers of NATS on loopback, and hosts of runs that meet there. */

import { join } from "node:path";
import { hostFacts } from "../../../../actors/run/nats_run.ts";
import { makeCredentials } from "../../../../actors/transports/nats/connection.ts";
import { joinRun } from "../../../../actors/transports/nats/host.ts";
import { Leader, type LeaderOptions } from "../../../../actors/transports/nats/leader.ts";
import { ROOT } from "../../../console/command.ts";
import { type Need, program, testNeeding } from "../../../needs.ts";

/** The server of Debian's package. */
export const NATS: Need = program("nats-server");

/** Registers a test that needs the server. */
export const natsTest = (name: string, fn: () => Promise<void> | void) =>
  testNeeding(NATS, `nats: ${name}`, fn);

/** The name of the runs of tests. */
export const RUN = "test-run";

/** A server with the credentials of one run. */
export class TestServer implements AsyncDisposable {
  readonly url: string;
  /** Facts that the hosts of the run must have in common with its leader. */
  readonly facts = hostFacts();
  readonly #folder: string;
  #process: Deno.ChildProcess | undefined;

  private constructor(folder: string, url: string) {
    this.#folder = folder;
    this.url = url;
  }

  /** Starts a server in a separate folder, on a free port. */
  static async start(hosts: number, run = RUN): Promise<TestServer> {
    const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 }), { port } = listener.addr;
    listener.close();
    const folder = await Deno.makeTempDir({ prefix: "troupe-nats-" });
    const listen = `127.0.0.1:${port}`;
    const { server, members } = await makeCredentials(run, hosts, listen);
    await Deno.writeTextFile(join(folder, "server.conf"), server);
    for (const [number, bytes] of members.entries()) {
      await Deno.writeFile(join(folder, `${number}.creds`), bytes);
    }
    const started = new TestServer(folder, `nats://${listen}`);
    await started.begin();
    return started;
  }

  /** Starts the process of the server, at first or again. */
  async begin(): Promise<void> {
    this.#process = new Deno.Command("nats-server", {
      args: ["-c", join(this.#folder, "server.conf")],
      ...{ stdout: "null", stderr: "null" },
    }).spawn();
    const { hostname, port } = new URL(this.url);
    for (;;) {
      try {
        (await Deno.connect({ hostname, port: Number(port) })).close();
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  /** Stops the process of the server, which keeps its connections. */
  stop(): void {
    this.#process!.kill("SIGSTOP");
  }

  /** Kills the process of the server. */
  async kill(): Promise<void> {
    this.#process?.kill("SIGKILL");
    await this.#process?.status;
    this.#process = undefined;
  }

  /** Path of the credentials of a member. */
  credentials(number: number): string {
    return join(this.#folder, `${number}.creds`);
  }

  /** Opens the leader of the run. */
  lead(options: Partial<LeaderOptions> = {}): Promise<Leader> {
    const { url, facts } = this, credentials = this.credentials(0), announce = () => {};
    const place = { url, run: RUN, credentials, facts };
    return Leader.open({ ...place, timeoutMs: 10_000, announce, ...options });
  }

  /** Lends threads of this process to the run. */
  host(number: number, signal?: AbortSignal, facts = this.facts): Promise<void> {
    const place = { url: this.url, run: RUN, credentials: this.credentials(number) };
    return joinRun({ ...place, facts, joinMs: 60_000, signal, announce: () => {} });
  }

  /** Starts a process that lends its threads to the run. */
  hostProcess(number: number): Deno.ChildProcess {
    const flags = ["--run-name", RUN, "--nats-creds", this.credentials(number)];
    return new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", join(ROOT, "cli.ts"), "join", this.url, ...flags],
      ...{ stdin: "null", stdout: "null", stderr: "null" },
    }).spawn();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await Deno.remove(this.#folder, { recursive: true });
  }
}
