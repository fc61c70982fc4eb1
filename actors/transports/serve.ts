/**
 * Runs an isolate in another thread, process or host than the root, and catches all errors of its
 * actors.
 *
 * [Note: order while connecting] The first frames to an isolate go through the root, which forwards
 * them, and so does an invitation to connect. The receiver connects. From then on all frames go
 * over the connection. The receiver starts to read it when it gets, through the root, a `switch`
 * frame: no more frames come through the root. So frames keep their order, and a first message is
 * never later than other messages that depend on it, for example when the sender asks others to
 * make an actor fail that it watches. Before a receiver learns that a sender is gone, it knows that
 * there is a connection to read to its end.
 *
 * @module
 */

import { describeStep } from "../runtime/actor.ts";
import { deliver, isolateGone } from "../runtime/deliver.ts";
import { describeFailure } from "../runtime/failure.ts";
import { Heartbeat, Isolate, openTelemetry } from "../runtime/isolate.ts";
import { fail } from "../runtime/lifecycle.ts";
import { FIRST_SERIAL } from "../runtime/spawning.ts";
import { run, turn } from "../runtime/steps.ts";
import type { IsolateSide, PeerConnector, PeerReceiver, PeerSender } from "../runtime/transport.ts";
import type { BootFrame, DownFrame, Frame, SwitchFrame, UpFrame } from "../runtime/wire.ts";
import { realClock, watchHeap } from "../runtime/world.ts";
import { locks, PortChannel, type WorkerConnector } from "./ports.ts";

/** Sends a frame to the root. */
type Up = (frame: UpFrame, transfer?: readonly Transferable[]) => void;

/** Connections from an isolate to the other isolates; the root has its own. */
class Peers {
  /** Isolates that are invited and have not connected yet. */
  readonly #invited = new Set<number>();
  readonly #senders = new Map<number, PeerSender>();
  readonly #receivers = new Map<number, PeerReceiver>();

  /**
   * @param number the number of this isolate.
   * @param connector absent when all frames go through the root.
   * @param receive handles a frame.
   * @param up sends a frame to the root.
   */
  constructor(
    private readonly number: number,
    private readonly connector: PeerConnector | undefined,
    private readonly receive: (frame: Frame) => void,
    private readonly up: Up,
  ) {}

  /** Sends to isolate `to`. @throws {DOMException} when the frame cannot be cloned. */
  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const sender = this.#senders.get(to);
    if (sender) return sender.send(frame, transfer);
    this.#forward(to, frame, transfer);
    if (!this.connector || this.#invited.has(to)) return;
    this.#invited.add(to);
    const connected = (sender: PeerSender) => this.#connected(to, sender);
    const { address, transfer: moved } = this.connector.invite(to, connected);
    this.up({ kind: "invite", to, address, transfer: moved }, moved);
  }

  /** Connects to isolate `from`. */
  accept(from: number, address: unknown): void {
    const receive = (frame: unknown) => this.receive(frame as Frame);
    const receiver = this.connector?.connect(from, address, receive);
    if (receiver) this.#receivers.set(from, receiver);
  }

  /**
   * Starts to read the connection from isolate `from`; no more of its frames come through the root.
   */
  switch(from: number): void {
    this.#receivers.get(from)?.listen();
  }

  /** Receives all frames of an ended isolate, and closes the connections between it and this one. */
  async end(isolate: number): Promise<void> {
    await this.#receivers.get(isolate)?.settle();
    this.#invited.delete(isolate);
    for (const ends of [this.#senders, this.#receivers]) {
      ends.get(isolate)?.close();
      ends.delete(isolate);
    }
  }

  /** Sends all waiting frames. */
  async finish(): Promise<void> {
    await Promise.all([...this.#senders.values()].map((sender) => sender.finish()));
  }

  #forward(to: number, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    this.up({ kind: "forward", to, frame, transfer }, transfer);
  }

  #connected(to: number, sender: PeerSender): void {
    // The isolate may have ended while it connected.
    if (!this.#invited.delete(to)) return sender.close();
    this.#senders.set(to, sender);
    this.#forward(to, { kind: "switch", from: this.number }, []);
  }
}

/** An isolate that runs in this thread or process. */
export interface ServedIsolate {
  /** Handles a frame from the root; called with each one, in order. */
  receive(frame: unknown): void;
  /**
   * True when the last actor has ended and the root has been notified; the root then closes the
   * connection.
   */
  readonly isDone: boolean;
  /** Resolves when all frames for other isolates are sent. */
  finish(): Promise<void>;
}

type FromRoot = DownFrame | SwitchFrame | Frame;

/**
 * Runs an isolate in this thread or process. The module that a {@linkcode Transport} starts must
 * call it once. The first frame contains the isolate's number.
 */
export function serveIsolate(side: IsolateSide): ServedIsolate {
  watchHeap();
  let isolate: Isolate | undefined, peers: Peers | undefined, isDone = false;
  /** Frames received before the first actor starts: an earlier stop would skip its cleanup. */
  let early: FromRoot[] | undefined = [];
  const up: Up = (frame, transfer = []) => {
    isDone ||= frame.kind === "done";
    side.send(frame, transfer);
  };
  const begin = async (frame: BootFrame) => {
    peers = new Peers(frame.isolate, side.peers, (frame) => isolate?.deliver(frame), up);
    isolate = openIsolate(frame, up, peers, side);
    isolate.deliver(frame.launch);
    await turn();
    const frames = early ?? [];
    early = undefined;
    for (const frame of frames) receive(frame);
  };
  const forget = async (
    { isolate: gone, reason }: Extract<DownFrame, { kind: "isolate-gone" }>,
  ) => {
    await peers!.end(gone);
    isolateGone(isolate!, gone, reason);
  };
  const receive = (frame: FromRoot): void => {
    if (frame.kind === "boot") return void begin(frame);
    if (early) return void early.push(frame);
    switch (frame.kind) {
      case "accept":
        return peers!.accept(frame.from, frame.address);
      case "switch":
        return peers!.switch(frame.from);
      case "isolate-gone":
        return void forget(frame);
      case "has-started":
        return up({ kind: "started", about: frame.about });
      default:
        return isolate!.deliver(frame);
    }
  };
  return {
    receive: (frame) => receive(frame as FromRoot),
    get isDone() {
      return isDone;
    },
    finish: async () => await peers?.finish(),
  };
}

/** Creates the isolate that a boot frame describes; its first actor is launched later. */
function openIsolate(
  { isolate: number, system, seed, stopGraceMs, observer, places }: BootFrame,
  up: Up,
  peers: Peers,
  side: IsolateSide,
): Isolate {
  const isolate = new Isolate(
    number,
    {
      system,
      seed,
      stopGraceMs,
      observer,
      heartbeat: new Heartbeat(side.heartbeat),
      collectives: side.collectives,
      places,
      clock: realClock(),
      telemetry: openTelemetry,
      // Yields after every step, so that a control message waits for at most one handler.
      breathe: turn,
      network: {
        start: (isolate, launch, transfer) =>
          up({ kind: "start", isolate, launch, transfer }, transfer),
        post: (to, frame, transfer) =>
          to === 0 ? side.send(frame, transfer) : peers.post(to, frame, transfer),
        drain: () => side.drain?.(),
        kill: (isolate, why) => up({ kind: "kill", isolate, why }),
      },
      onDeadLetter: (letter, message) => up({ kind: "dead-letter", letter, message }),
      onFailure: (failure) => up({ kind: "done", reason: failure }),
      onEmpty: (reason) => up({ kind: "done", reason }),
    },
    deliver,
    run,
  );
  for (const [type, key] of [["error", "error"], ["unhandledrejection", "reason"]] as const) {
    addEventListener(type, (event) => {
      event.preventDefault();
      blame(isolate, (event as unknown as Record<string, unknown>)[key]);
    });
  }
  return isolate;
}

/** Attributes an uncaught error to the current actor, or to the first one of the isolate. */
function blame(isolate: Isolate, error: unknown): void {
  const actor = isolate.current ?? isolate.actors.get(FIRST_SERIAL);
  if (!actor) return;
  fail(
    isolate,
    actor,
    describeFailure(actor.ref.id, "throw", error, describeStep(actor, actor.step)),
  );
}

/** The only message to the worker itself, sent first. */
export interface WorkerOrders {
  /** The worker's end of the channel to the root. */
  readonly root: MessagePort;
  /** Memory in which the worker records its activity. */
  readonly heartbeat: SharedArrayBuffer;
  /** Additional data for workers of another transport. */
  readonly more: unknown;
}

/** The global scope of a Deno worker that receives orders and sends reports. */
export interface WorkerScope<Orders, Report> {
  readonly name: string;
  onmessage: (event: MessageEvent<Orders>) => void;
  postMessage(report: Report): void;
}

/**
 * Serves this worker's isolate.
 *
 * @param connect creates the connector from the additional data of the orders. Absent: all frames
 * go through the root.
 */
export function serveWorker(connect?: (more: unknown) => WorkerConnector): void {
  const scope = globalThis as unknown as WorkerScope<WorkerOrders, "ready">;
  scope.onmessage = ({ data: { root, heartbeat, more } }) => {
    const channel = new PortChannel(root, (frame) => isolate.receive(frame));
    const peers = connect?.(more);
    const isolate = serveIsolate({
      send: (frame, transfer) => channel.send(frame, transfer),
      drain(): undefined {
        channel.drain();
        peers?.drain();
      },
      heartbeat,
      peers,
      collectives: peers?.collectives,
    });
    channel.listen();
  };
  // Held until the worker ends for any reason; the root waits for the lock.
  locks.request(scope.name, () => {
    scope.postMessage("ready");
    return new Promise(() => {});
  });
}
