/**
 * An isolate in another thread, process or host than the root: it catches all that its actors throw.
 *
 * [Note: the way to a connection] The first frames to an isolate go by the root, which passes them
 * on, and so does an invitation. The receiver connects. From then on all goes over the connection,
 * to which the receiver begins to listen when it gets, by the root, the note that nothing more
 * comes that way. So frames keep their order, and a first message is never later than what the
 * sender tells others afterwards, such as that it watches an actor which these then make fail. A
 * receiver knows, before it learns that a sender is gone, that there is a connection to be heard to
 * its end.
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
import type {
  Collectives,
  IsolateSide,
  PeerConnector,
  PeerReceiver,
  PeerSender,
} from "../runtime/transport.ts";
import type { BootFrame, DownFrame, Frame, SwitchFrame, UpFrame } from "../runtime/wire.ts";
import { realClock, watchHeap } from "../runtime/world.ts";
import { locks, PortChannel } from "./ports.ts";

/** How an isolate tells the root. */
type Up = (frame: UpFrame, transfer?: readonly Transferable[]) => void;

/** The other isolates, as one that is not the root reaches them. */
class Peers {
  /** Those that may connect and have not yet. */
  readonly #invited = new Set<number>();
  readonly #senders = new Map<number, PeerSender>();
  readonly #receivers = new Map<number, PeerReceiver>();
  readonly #number: number;
  readonly #connector: PeerConnector | undefined;
  readonly #receive: (frame: Frame) => void;
  readonly #up: Up;

  /**
   * @param number that of this isolate.
   * @param connector absent where all goes by the root.
   * @param receive handles a frame.
   * @param up tells the root.
   */
  constructor(
    number: number,
    connector: PeerConnector | undefined,
    receive: (frame: Frame) => void,
    up: Up,
  ) {
    this.#number = number;
    this.#connector = connector;
    this.#receive = receive;
    this.#up = up;
  }

  /** Sends to isolate `to`. @throws {DOMException} when it cannot be cloned. */
  post(to: number, frame: Frame, transfer: readonly ArrayBuffer[]): void {
    const sender = this.#senders.get(to);
    if (sender) return sender.send(frame, transfer);
    this.#forward(to, frame, transfer);
    if (!this.#connector || this.#invited.has(to)) return;
    this.#invited.add(to);
    const connected = (sender: PeerSender) => this.#connected(to, sender);
    const { address, transfer: moved } = this.#connector.invite(to, connected);
    this.#up({ kind: "invite", to, address, transfer: moved }, moved);
  }

  /** Connects to isolate `from`. */
  accept(from: number, address: unknown): void {
    const receive = (frame: unknown) => this.#receive(frame as Frame);
    const receiver = this.#connector?.connect(from, address, receive);
    if (receiver) this.#receivers.set(from, receiver);
  }

  /** Nothing more comes from isolate `from` but over its connection. */
  switch(from: number): void {
    this.#receivers.get(from)?.listen();
  }

  /** Waits until all that a dead isolate has sent is received. */
  async settle(from: number): Promise<void> {
    await this.#receivers.get(from)?.settle();
  }

  /** Ends the connections between this isolate and one that is gone. */
  close(isolate: number): void {
    this.#invited.delete(isolate);
    for (const ends of [this.#senders, this.#receivers]) {
      ends.get(isolate)?.close();
      ends.delete(isolate);
    }
  }

  /** Sends all there is to send. */
  async finish(): Promise<void> {
    await Promise.all([...this.#senders.values()].map((sender) => sender.finish()));
  }

  #forward(to: number, frame: Frame | SwitchFrame, transfer: readonly ArrayBuffer[]): void {
    this.#up({ kind: "forward", to, frame, transfer }, transfer);
  }

  #connected(to: number, sender: PeerSender): void {
    // It may have died on its way here.
    if (!this.#invited.delete(to)) return sender.close();
    this.#senders.set(to, sender);
    this.#forward(to, { kind: "switch", from: this.#number }, []);
  }
}

/** An isolate that lives here. */
export interface ServedIsolate {
  /** To be called with each frame that the root sends, in order. */
  receive(frame: unknown): void;
  /** Its last actor has ended, and the root been told: the root closes the connection next. */
  readonly isDone: boolean;
  /** Resolves when all is sent that it had for other isolates. */
  finish(): Promise<void>;
}

type FromRoot = DownFrame | SwitchFrame | Frame;

/**
 * Runs an isolate in this thread, or process: what the module that a {@linkcode Transport} starts
 * has to call, once. The first frame that it receives says which isolate it is.
 */
export function serveIsolate(side: IsolateSide): ServedIsolate {
  watchHeap();
  let isolate: Isolate | undefined, peers: Peers | undefined, isDone = false;
  /** What has come while the first actor has not begun: a stop then would keep it from its cleanup. */
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
    await peers!.settle(gone);
    peers!.close(gone);
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

/** Makes the isolate that a boot frame describes; its first actor is not launched yet. */
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
      // After every step, so that a control message can overtake however long a handler computes.
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

/** Blames what nobody caught on the actor at work, else on the isolate's first. */
function blame(isolate: Isolate, error: unknown): void {
  const actor = isolate.current ?? isolate.actors.get(FIRST_SERIAL);
  if (!actor) return;
  fail(
    isolate,
    actor,
    describeFailure(actor.ref.id, "throw", error, describeStep(actor, actor.step)),
  );
}

/** The first and only message to the worker itself. */
export interface WorkerOrders {
  /** The worker's end of the channel to the root. */
  readonly root: MessagePort;
  /** Where the worker shows that it is at work. */
  readonly heartbeat: SharedArrayBuffer;
  /** What the workers of another transport get beside. */
  readonly more: unknown;
}

/** The global scope of a Deno worker. */
interface WorkerScope {
  readonly name: string;
  onmessage: (event: MessageEvent<WorkerOrders>) => void;
  postMessage(message: "ready"): void;
}

/** Connects a worker to others. */
interface WorkerConnector extends PeerConnector {
  /** Receives what has come by now. */
  drain(): void;
  readonly collectives?: Collectives;
}

/**
 * Serves this worker's isolate.
 *
 * @param connect makes the connector, from what came beside the orders.
 */
export function serveWorker(connect: (more: unknown) => WorkerConnector): void {
  const scope = globalThis as unknown as WorkerScope;
  scope.onmessage = ({ data: { root, heartbeat, more } }) => {
    const channel = new PortChannel(root, (frame) => isolate.receive(frame));
    const peers = connect(more);
    const isolate = serveIsolate({
      send: (frame, transfer) => channel.send(frame, transfer),
      drain() {
        channel.drain();
        peers.drain();
        return undefined;
      },
      heartbeat,
      peers,
      collectives: peers.collectives,
    });
    channel.listen();
  };
  // Held until the end of the worker, however that comes: the root waits for it.
  locks.request(scope.name, () => {
    scope.postMessage("ready");
    return new Promise(() => {});
  });
}
