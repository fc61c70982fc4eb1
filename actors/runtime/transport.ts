/**
 * A transport: how isolates of one kind are started, reached and ended. All that it must do is here;
 * nothing above asks which one it is.
 *
 * What travels is opaque to it: values that structured clone takes, each with a list of buffers that
 * are to move. Who carries bytes finds both directions of that in {@linkcode encodeFrame} and
 * {@linkcode decodeFrame}, and a loop for sockets in {@linkcode Outbox} and
 * {@linkcode receiveFrames}.
 *
 * [Note: a star, and short cuts] Each isolate has one connection, to the root, which passes on what
 * is for others. That is enough: a transport need not know that isolates talk to each other. One
 * whose isolates can reach each other directly says so on their side ({@linkcode PeerConnector}),
 * and spares the root the bulk.
 *
 * [Note: ranks] Where isolates exist from the beginning, as the ranks of MPI do, `open` counts those
 * that are free, `start` takes one and sends it `boot`, and throws a RangeError when none is left;
 * the module of each rank calls {@linkcode serveIsolate} and waits for its first frame. An encoded
 * frame is one message of bytes, each of its large buffers another. Peers talk at once: the address
 * in an invitation is a rank. A rank that cannot be killed is one that is not listened to any more.
 *
 * @module
 */

/**
 * A kind of isolates, to be registered with {@linkcode SystemOptions.transport}.
 *
 * @example Threads, with nothing done for the way they may die
 * ```ts
 * import { createSystem, type Transport } from "@troupe/troupe/actors";
 * import assert from "node:assert/strict";
 *
 * const library = import.meta.resolve("@troupe/troupe/actors");
 * const inside = `import { serveIsolate } from ${JSON.stringify(library)};
 *   onmessage = ({ data: port }) => {
 *     const isolate = serveIsolate({ send: (...sent) => port.postMessage(...sent) });
 *     port.onmessage = ({ data }) => isolate.receive(data);
 *   };
 *   postMessage("listening");`;
 * const thread: Transport = {
 *   name: "thread",
 *   sharesMemory: true,
 *   canKill: false,
 *   limitsMemory: false,
 *   open: () => ({
 *     start({ boot, transfer, receive }) {
 *       const { port1, port2 } = new MessageChannel();
 *       // Kept until the other end listens.
 *       port1.postMessage(boot, [...transfer]);
 *       port1.onmessage = ({ data }) => receive(data);
 *       const url = `data:text/javascript,${encodeURIComponent(inside)}`;
 *       const worker = new Worker(url, { type: "module" });
 *       worker.onmessage = () => worker.postMessage(port2, [port2]);
 *       const gone = Promise.withResolvers<string>();
 *       const end = () => {
 *         worker.terminate();
 *         port1.close();
 *         gone.resolve("it was ended");
 *       };
 *       const send = (frame: unknown, transfer: readonly Transferable[]) =>
 *         port1.postMessage(frame, [...transfer]);
 *       return { send, close: end, kill: end, gone: gone.promise, ended: Promise.resolve() };
 *     },
 *   }),
 * };
 *
 * const module = "data:text/javascript,export const echo = (ctx) => ({ Say: ({ it }) => ctx.reply(it) })";
 * await using system = createSystem({ transport: thread });
 * const echo = system.spawn<undefined, { type: "Say"; it: string }>(
 *   { module, export: "echo" },
 *   undefined,
 *   { id: "echo", isolate: "thread" },
 * );
 * assert.notEqual(echo.isolate, 0);
 * assert.equal(await system.ask(echo, { type: "Say", it: "hello" }), "hello");
 * ```
 */
export interface Transport {
  /** What a place is asked for by: `isolate: "tcp"`. */
  readonly name: string;
  /** Its isolates see the memory of a SharedArrayBuffer that they are sent. */
  readonly sharesMemory: boolean;
  /** It can end an isolate however busy that is. */
  readonly canKill: boolean;
  /** It can limit the JavaScript heap of an isolate. */
  readonly limitsMemory: boolean;
  /** Throws, in one sentence, when no isolate can be started: asked before hours are spent. */
  check?(): void;
  /** Opens it for a system, which does so when it starts the first isolate of this kind. */
  open(options: TransportOptions): OpenTransport;
}

/** What a system tells a transport of itself. */
export interface TransportOptions {
  /** How long an isolate that is done may take to end before it is ended, in milliseconds. */
  readonly stopGraceMs: number;
}

/** A transport at work for one system. What it opened is closed when its last isolate has ended. */
export interface OpenTransport {
  /**
   * Starts an isolate.
   *
   * @throws {DOMException} `DataCloneError` when `boot` cannot be cloned.
   * @throws when it cannot be started; nothing of it is left then.
   */
  start(request: StartRequest): RemoteIsolate;
  /**
   * Receives what has come by now, called whenever the event loop has had its turn: for those whose
   * events the loop would hand over too slowly.
   */
  drain?(): Promise<void> | undefined;
  /** Frees what the address of an invitation holds that no isolate gets. */
  decline?(address: unknown): void;
}

/** The start of an isolate. */
export interface StartRequest {
  /** Its number in the system. */
  readonly isolate: number;
  /** Limit of its heap in MiB, where the transport can set one. */
  readonly memoryLimitMb: number | undefined;
  /** What it gets before anything else. */
  readonly boot: unknown;
  /** Buffers in `boot` that move. */
  readonly transfer: readonly ArrayBuffer[];
  /** To be called with each frame that comes from it, in the order in which they were sent. */
  readonly receive: (frame: unknown) => void;
}

/**
 * An isolate as the root sees it. Where its transport breaks a promise, as one that throws when it
 * is to send, or that does not say within twice the grace that what it has ended is gone, the isolate
 * counts as gone.
 */
export interface RemoteIsolate {
  /**
   * Sends a frame. Frames arrive in order, each whole or not at all, and as they are now: what is in
   * `transfer` moves, the rest is copied.
   *
   * @throws {DOMException} `DataCloneError` when the frame cannot be cloned: then nothing is sent.
   */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** Lets it end by itself, and ends it after the grace: it has said that it is done. */
  close(): void;
  /** Ends it, however busy it is. */
  kill(): void;
  /** Resolves when nothing comes from it any more and all that did is received: with the cause, as
   * in "exited with code 3". It must come however the isolate ends. */
  readonly gone: Promise<string>;
  /** Settles when nothing of it is left. */
  readonly ended: Promise<void>;
  /** Gives up waiting for its end: `ended` settles soon. Called only after it is gone. */
  abandon?(): void;
  /** Whether it is at work, or has been since this was asked last. Absent: it counts as at work
   * when a frame has come. */
  isAlive?(): boolean;
}

/** Where an isolate is, from within: what its own module hands to {@linkcode serveIsolate}. */
export interface IsolateSide {
  /** Sends a frame to the root; as {@linkcode RemoteIsolate.send} does. */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** As {@linkcode OpenTransport.drain}; also lets what is large leave before the next step. */
  drain?(): Promise<void> | undefined;
  /** Two 32-bit integers in which it counts what it begins and ends of {@linkcode Context.busy}, for
   * another thread to look at. Absent: nobody does. */
  readonly heartbeat?: SharedArrayBuffer | undefined;
  /** How to reach others without the root. */
  readonly peers?: PeerConnector | undefined;
  /** How to add with others without messages. */
  readonly collectives?: Collectives | undefined;
}

/** An array that is to be added to those of others. */
export interface Addend {
  /** Who adds: a number of the groups that the transport was made with. */
  readonly group: number;
  /** Whose array it is: a place in the group. */
  readonly member: number;
  /** The array, all of its buffer; it moves. */
  readonly values: Float32Array<ArrayBuffer>;
}

/** Sums over isolates, by a network that knows how to make them. */
export interface Collectives {
  /**
   * Adds arrays of all members of a group, element by element: the n-th of a member to the n-th of
   * each other, which is as long. All get the same sums, to the bit.
   */
  allReduce(addend: Addend, done: (sums: Float32Array<ArrayBuffer>) => void): void;
}

/** Opens connections from isolate to isolate, within one transport. Each carries one direction. */
export interface PeerConnector {
  /**
   * Lets an isolate connect in order to hear this one.
   *
   * @param connected to be called with the sending end once it has.
   */
  invite(isolate: number, connected: (sender: PeerSender) => void): Invitation;
  /**
   * Connects to one that has invited. What it sends must wait until {@linkcode PeerReceiver.listen}.
   */
  connect(isolate: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver;
}

/** What an isolate needs to know in order to connect. */
export interface Invitation {
  /** Anything that a frame can hold. */
  readonly address: unknown;
  /** What the address moves to the other isolate. */
  readonly transfer: readonly Transferable[];
}

/** The end of a connection that sends. */
export interface PeerSender {
  /** As {@linkcode RemoteIsolate.send}. */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** Resolves when all is sent. */
  finish(): Promise<void>;
  /** Ends it; what is not sent is lost. */
  close(): void;
}

/** The end of a connection that receives. */
export interface PeerReceiver {
  /** Begins to receive. */
  listen(): void;
  /** Resolves when all that a dead sender has sent is received; called before `listen`, nothing is. */
  settle(): Promise<void>;
  /** Ends it. */
  close(): void;
}
