/**
 * Starts and controls the communication worker from the agent of a rank.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import type { Addend, Collectives } from "../../runtime/transport.ts";
import { decodeFrame, encodeFrame } from "../codec.ts";
import { PortChannel } from "../ports.ts";
import type { CommOrder, CommReport } from "./comm_entry.ts";
import { JobRefusal, type MpiOptions, watchFinalize } from "./library.ts";
import type { GroupRanks, SumFrame } from "./transfers.ts";
import { type Address, AGENT, type JobFacts, movedOf, type Packet } from "./wire.ts";

type Done = Parameters<Collectives["allReduce"]>[1];

/** Opens an isolate's channel over its port to the communication worker. */
export function openFrames(port: MessagePort, receive: (frame: unknown) => void) {
  const summed = new Map<number, Done>();
  let sums = 0;
  const channel = new PortChannel(port, (frame) => {
    if ("addend" in (frame as object)) {
      const { nth, addend } = frame as SumFrame, done = summed.get(nth)!;
      summed.delete(nth);
      return done(addend.values);
    }
    const { body, buffers } = frame as Packet;
    receive(decodeFrame(body, buffers.map(({ buffer }) => buffer)));
  });
  channel.listen();
  return {
    /** Sends a frame. @throws {DOMException} `DataCloneError` when it cannot be cloned. */
    send(to: Address, frame: unknown, transfer: readonly Transferable[]): void {
      const { body, buffers } = encodeFrame(frame, transfer as readonly ArrayBuffer[]);
      const packet: Packet = { to, body, buffers };
      channel.send(packet, movedOf(packet));
    },
    allReduce(addend: Addend, done: Done): void {
      const frame: SumFrame = { nth: sums++, addend };
      summed.set(frame.nth, done);
      channel.send(frame, [addend.values.buffer]);
    },
    /** Receives all pending frames. */
    drain: () => channel.drain(),
    close: () => channel.close(),
  };
}

/** MPI, initialized in a separate thread. */
export type Comm = Awaited<ReturnType<typeof openComm>>;

/** Options of {@linkcode openComm}. */
interface CommOptions extends MpiOptions {
  /** Milliseconds that the other ranks may take to join. */
  readonly joinMs: number;
  /** The interface, address or network on which ranks listen for announcements. */
  readonly on: string | undefined;
  /** Facts that must be the same on all ranks. */
  readonly facts: JobFacts;
  /** Handles a frame for the agent. */
  readonly receive: (frame: unknown) => void;
  /** Called when a transfer has failed: the job is lost. */
  readonly failed: (error: Error) => void;
}

/**
 * Initializes MPI; every rank calls it.
 *
 * @throws {JobRefusal} when no rank can join, all for the same reason.
 * @throws {Error} when MPI cannot be initialized.
 */
export async function openComm(
  { receive, failed, on, facts, joinMs, ...mpi }: CommOptions,
) {
  const worker = new Worker(new URL("./comm_entry.ts", import.meta.url), { type: "module" });
  const order = (one: CommOrder, transfer: Transferable[] = []) =>
    worker.postMessage(one, transfer);
  const opened = Promise.withResolvers<Extract<CommReport, { kind: "opened" }>>();
  const closed = Promise.withResolvers<void>(), leaving = new Map<number, () => void>();
  let isOpen = false, stopWatching = () => {};
  worker.onmessage = ({ data }: MessageEvent<CommReport>) => {
    if (data.kind === "opened") opened.resolve(data);
    else if (data.kind === "left") leaving.get(data.isolate)?.();
    else if (data.kind === "closing") stopWatching = watchFinalize(closed.resolve);
    else if (data.kind === "closed") closed.resolve();
    else if (data.kind === "refused") {
      closed.promise.then(() => opened.reject(new JobRefusal(data.message)));
    } else (isOpen ? failed : opened.reject)(new Error(data.message));
  };
  closed.promise.then(() => stopWatching());
  worker.onerror = (event) => {
    event.preventDefault();
    (isOpen ? failed : opened.reject)(new Error(event.message));
  };
  order({ kind: "open", mpi, on, facts });
  const { rank, size, version } = await orGiveUp(opened.promise, mpi.ranks, joinMs).catch(
    (error) => {
      worker.terminate();
      throw error;
    },
  );
  isOpen = true;
  const join = (isolate: number) => {
    const { port1, port2 } = new MessageChannel();
    order({ kind: "join", isolate, port: port1 }, [port1]);
    return port2;
  };
  const frames = openFrames(join(AGENT), receive);
  return {
    rank,
    size,
    /** The version text of the library. */
    version,
    /** The agent's channel. */
    frames,
    /** Connects an isolate of this rank; returns its end of the channel. */
    join,
    /** Replaces the groups whose members add arrays, on all ranks. */
    group: (groups: readonly GroupRanks[]) => order({ kind: "group", groups }),
    /** Disconnects an ended isolate; resolves when all its frames are on their way. */
    leave: (isolate: number) =>
      new Promise<void>((resolve) => {
        leaving.set(isolate, resolve);
        order({ kind: "leave", isolate });
      }),
    /** Finalizes MPI, as every rank must; resolves when all ranks have. */
    async close() {
      order({ kind: "close" });
      await closed.promise;
      frames.close();
      worker.terminate();
    },
  };
}

/**
 * Waits at most `joinMs` for the other ranks.
 *
 * [Note: missing ranks] Ranks wait for each other while they initialize MPI, in a call that does
 * not return. A launcher ends all ranks when one has died, but MPICH's only does so after that rank
 * has started to initialize MPI. Without this limit, ranks would wait forever for a host without
 * Deno, library or memory.
 */
async function orGiveUp<T>(opened: Promise<T>, ranks: number, joinMs: number): Promise<T> {
  try {
    return await deadline(opened, joinMs);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    const must = `all of its ${ranks} ranks must open MPI within ${joinMs / 1000} s`;
    const received = "fewer; look at what the others have said";
    throw new Error(`Cannot join the job: ${must}, received ${received}`);
  }
}
