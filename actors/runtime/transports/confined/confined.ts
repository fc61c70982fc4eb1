/**
 * The isolates of code that the program did not write: each in a process that can do nothing but what
 * it was granted, and that is ended when it takes more than it may. Nothing that comes from it is
 * believed.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { messageOf } from "../../failure.ts";
import type { Confined } from "../confinement.ts";
import { endReason } from "../process/end_reason.ts";
import { Outbox, receiveFrames } from "../stream/stream.ts";
import type { RemoteIsolate, StartRequest, TransportOptions } from "../transport.ts";
import { Audit } from "./audit.ts";
import { confinedCommand, withModules } from "./command.ts";
import { type Grants, grantsOf } from "./grants.ts";
import { keep, type Keeper } from "./keeper.ts";
import { LimitsWatch } from "./limits.ts";
import { sinkOf, sourceOf } from "./pipes.ts";
import { showLines } from "./printed_lines.ts";
import { type Call, isSign } from "./signs.ts";
import { hasOpenedCaches, ownCache, type Workshop } from "./workshop.ts";

/** Bytes of a MiB. */
const MB = 2 ** 20;

/** Milliseconds in which a process that has closed its output must have ended. */
const CLOSED_MS = 1000;

const CALL: Call = { kind: "call" };

/** The start of one. */
export type ConfinedRequest = StartRequest & { readonly confinement: Confined };

/** Whether what is started is to be confined. */
export function isConfined(request: StartRequest): request is ConfinedRequest {
  return request.confinement !== undefined;
}

/** A process in which code of a package runs, seen from the root. */
export class ConfinedIsolate implements RemoteIsolate {
  readonly ended: Promise<void>;
  readonly #gone = Promise.withResolvers<string>();
  readonly #request: StartRequest;
  readonly #limits: Confined;
  readonly #grants: Grants;
  readonly #graceMs: number;
  readonly #workshop: Workshop;
  readonly #outbox = new Outbox();
  #child: Deno.ChildProcess | undefined;
  #audit: Audit | undefined;
  #hasBegun = false;
  /** Why it is ended; the first reason counts. */
  #why: string | undefined;
  #hasStirred = false;
  #killTimer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Starts a process, as soon as its modules are there.
   *
   * @throws {DOMException} when the first frame cannot be cloned.
   * @throws {Deno.errors.NotCapable} when it would get more permissions than this program has.
   * @throws {RangeError} when the folder for temporary files cannot be used.
   */
  constructor(
    request: ConfinedRequest,
    { stopGraceMs }: TransportOptions,
    workshop: Workshop,
  ) {
    const { boot, transfer, confinement, isolate } = request;
    this.#request = request;
    this.#limits = confinement;
    this.#graceMs = stopGraceMs;
    this.#workshop = workshop;
    this.#grants = grantsOf(confinement.actor, confinement.permissions);
    this.#outbox.post(boot, transfer);
    this.ended = this.#live(workshop.enter(isolate));
  }

  get gone(): Promise<string> {
    return this.#gone.promise;
  }

  hasBegun(): boolean {
    return this.#hasBegun;
  }

  send(frame: unknown, transfer: readonly Transferable[]): void {
    this.#outbox.post(frame, transfer as readonly ArrayBuffer[]);
  }

  stirs(): boolean {
    const hasStirred = this.#hasStirred;
    this.#hasStirred = false;
    return hasStirred;
  }

  close(): void {
    if (!this.#child) return this.kill();
    this.#gone.resolve("it is done");
    this.#outbox.finish();
    this.#killTimer ??= setTimeout(() => this.kill(), this.#graceMs);
  }

  kill(): void {
    this.#end("it was ended");
  }

  /** From its start to the end of all that is left of it. */
  async #live(folder: string): Promise<void> {
    try {
      const graph = await this.#workshop.graphOf(this.#limits);
      if (this.#why !== undefined) return;
      const own = { folder, audit: join(folder, "audit"), cache: ownCache(graph.cache, folder) };
      const audit = new Audit(own.audit, withModules(this.#grants, graph), this.#limits.denied);
      const command = confinedCommand(graph, this.#grants, this.#limits.memoryLimitMb, own);
      await this.#run(command.spawn(), audit, own.cache);
    } catch (error) {
      this.#why ??= messageOf(error);
    } finally {
      this.#gone.resolve(this.#why ?? "it was ended");
      this.#workshop.leave(this.#request.isolate);
    }
  }

  async #run(child: Deno.ChildProcess, audit: Audit, cache: string): Promise<void> {
    this.#child = child;
    this.#audit = audit;
    this.#hasBegun = true;
    const { actor, memoryLimitMb } = this.#limits;
    const keeper = this.#keeperOf(child, dirname(dirname(cache))), output = sourceOf(child.stdout);
    const printed = child.stderr.getReader(), shown = showLines(printed, actor);
    const watch = new LimitsWatch({
      pid: child.pid,
      limits: this.#limits,
      look() {
        if (audit.read()) return "it must not ask for permissions without end";
        return hasOpenedCaches(cache) ? "it must not keep data in caches" : undefined;
      },
      call: () => this.#outbox.post(CALL),
      exceed: (what) => this.#end(what),
    });
    this.#outbox.attach(sinkOf(child.stdin));
    const heard = receiveFrames(output, (frame) => this.#hear(frame, watch), memoryLimitMb * MB)
      .then(
        () => this.#endSoon("it must not close its output"),
        (error) => {
          this.#end(`it broke the protocol: ${messageOf(error)}`);
          return output.cancel();
        },
      );
    const status = await child.status;
    this.#child = undefined;
    await keeper?.[Symbol.asyncDispose]();
    watch.close();
    clearTimeout(this.#killTimer);
    // A process that it has started may hold the other ends.
    const all = Promise.all([heard, shown]);
    const late = setTimeout(() => void [output.cancel(), printed.cancel()], CLOSED_MS);
    await all;
    await output.cancel(); // one that broke the protocol is not heard to its end
    clearTimeout(late);
    clearTimeout(this.#killTimer);
    this.#outbox.close();
    audit.close();
    const how = this.#why ?? endReason(status);
    this.#gone.resolve(audit.summary ? `${how}; it was denied ${audit.summary}` : how);
  }

  /** Without one, it does not live. */
  #keeperOf({ pid }: Deno.ChildProcess, folder: string): Keeper | undefined {
    try {
      return keep(pid, folder);
    } catch (error) {
      this.#end(`it must have a keeper: ${messageOf(error)}`);
    }
  }

  #hear(frame: unknown, watch: LimitsWatch): void {
    if (!isSign(frame)) {
      this.#hasStirred = true;
      // What it was denied is told before what it says next.
      this.#audit?.read();
      return this.#request.receive(frame);
    }
    this.#hasStirred ||= frame.isAtWork;
    watch.hear(frame);
  }

  #end(why: string): void {
    this.#why ??= why;
    if (!this.#child) return this.#gone.resolve(this.#why);
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It died a moment ago, and its status is about to say so.
    }
  }

  /** It is about to end, or will not. */
  #endSoon(why: string): void {
    if (this.#child) this.#killTimer ??= setTimeout(() => this.#end(why), CLOSED_MS);
  }
}
