/**
 * A host of a run: lends its threads to the leader.
 *
 * @module
 */

import { messageOf } from "../../runtime/failure.ts";
import type { BootFrame, UpFrame } from "../../runtime/wire.ts";
import { Agent, type AgentOrder } from "../agent.ts";
import { Outbox, receiveFrames } from "../stream.ts";
import { openWorkers } from "../worker.ts";
import { BEAT_MS, connectMember, decodeControl, LEADER, type MeetingPlace } from "./connection.ts";
import { BASE, type Control, type HostFacts } from "./leader.ts";
import { CONTROL, Link, linkOf } from "./link.ts";

/** Options of {@linkcode joinRun}. */
export interface HostOptions extends MeetingPlace {
  readonly facts: HostFacts;
  /** Time within which the leader must answer, in milliseconds. */
  readonly joinMs: number;
  /** Makes the host leave at the end of a step. */
  readonly signal?: AbortSignal | undefined;
  readonly announce: (line: string) => void;
}

/** Factor between the timeouts of a host for a silent leader and of the leader for a silent host. */
const PATIENCE = 6;

/** Exit codes: of a host that the run refuses, and of a lost run, which the host may join again. */
const REFUSED = 1, LOST = 75;

/**
 * Joins a run, and lends it threads until it is over.
 *
 * @throws {Error} when the leader does not answer, refuses this host or is lost.
 */
export async function joinRun(options: HostOptions): Promise<void> {
  const { run, facts, joinMs, signal, announce } = options;
  const session = crypto.getRandomValues(new Uint32Array(1))[0]!;
  const over = Promise.withResolvers<void>();
  let link: Link | undefined, agent: Agent | undefined, quiet = 0, limitMs = joinMs;
  const say = (control: Control) => connection.say(LEADER, control);
  const hello = () => say({ type: "hello", session, facts });
  const sayLeave = () => say({ type: "leave", link: link!.number });
  const fail = (exitCode: number, why: string) => {
    const cannot = `Cannot ${link ? "stay in" : "join"} the run ${run}: ${why}`;
    over.reject(Object.assign(new Error(cannot), { exitCode }));
  };
  const leave = () => {
    if (!link) return over.resolve();
    announce(`leaving the run ${run} after this step`);
    sayLeave();
  };
  const hearControl = (control: Control) => {
    if (control.type === "refused") {
      fail(REFUSED, control.why);
    } else if (control.type === "over" && control.link === link?.number) {
      const { why } = control;
      if (why === undefined) over.resolve();
      else fail(LOST, why);
    } else if (control.type === "welcome" && control.session === session && !link) {
      limitMs = PATIENCE * control.timeoutMs;
      const publish = (message: Uint8Array) => connection.publish(LEADER, message);
      link = new Link(control.link, publish, connection.maxBytes);
      const serving = agent = agentOn(link);
      const obey = (order: unknown) => serving.receive(moved(order as AgentOrder, control.base));
      receiveFrames(link, obey).catch(over.reject);
      announce(`host ${connection.number} has joined the run ${run}`);
    }
  };
  const connection = await connectMember(options, {
    hear(_, message) {
      quiet = 0;
      if (message[0] === CONTROL) hearControl(decodeControl(message) as Control);
      else if (link && linkOf(message) === link.number) link.hear(message);
    },
    reconnected: () => link?.resend(),
    closed: (error) => fail(LOST, messageOf(error)),
  });
  const timer = setInterval(() => {
    if (!link) hello();
    else if (signal?.aborted) sayLeave();
    link?.beat();
    if (++quiet * BEAT_MS <= limitMs) return;
    fail(LOST, `its leader must answer within ${limitMs / 1000} s, received nothing`);
  }, BEAT_MS);
  signal?.addEventListener("abort", leave, { once: true });
  try {
    hello();
    await over.promise;
  } finally {
    clearInterval(timer);
    link?.close();
    await agent?.close();
    await connection.close();
  }
}

/** Returns an agent whose reports go over a link. */
function agentOn(link: Link): Agent {
  const outbox = new Outbox();
  outbox.attach(link);
  const workers = openWorkers({ module: new URL("./host_entry.ts", import.meta.url) });
  return new Agent(workers, {
    tell: (report) => outbox.post(report, report.kind === "frame" ? movedIn(report.frame) : []),
  });
}

/** Returns the buffers that a frame to another isolate moves. */
const movedIn = (frame: unknown): readonly ArrayBuffer[] =>
  (frame as Partial<Extract<UpFrame, { kind: "forward" }>>).transfer ?? [];

/** Returns an order with the URLs of Troupe's modules on this host. */
function moved(order: AgentOrder, base: string): AgentOrder {
  if (order.kind !== "start") return order;
  const boot = order.boot as BootFrame, { launch, launch: { spec } } = boot;
  if (!spec.module.startsWith(base)) return order;
  const module = BASE + spec.module.slice(base.length);
  return { ...order, boot: { ...boot, launch: { ...launch, spec: { ...spec, module } } } };
}
