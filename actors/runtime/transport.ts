/**
 * A transport: starts, reaches and ends isolates of one kind. This module has its complete
 * interface; the rest of the runtime does not depend on the kind of a transport.
 *
 * A transport does not look into frames: they are structured-cloneable values, each with a list of
 * buffers to move. A transport of bytes can use {@linkcode encodeFrame} and {@linkcode
 * decodeFrame}, and for sockets {@linkcode Outbox} and {@linkcode receiveFrames}.
 *
 * [Note: star and direct connections] Each isolate has one connection, to the root, which forwards
 * frames for other isolates. This is sufficient: a transport does not need to know that isolates
 * exchange frames. If its isolates can reach each other directly, each of them provides a
 * {@linkcode PeerConnector}, which keeps most traffic away from the root.
 *
 * [Note: ranks] If all isolates exist from the beginning, such as the ranks of MPI, `open` counts
 * the free ones, and `start` takes one and sends it `boot`, or throws a RangeError if none is left.
 * The module of each rank calls {@linkcode serveIsolate} and waits for its first frame. An encoded
 * frame is one message of bytes, and each of its large buffers another. Peers can exchange frames
 * immediately: the address in an invitation is a rank. If a rank cannot be killed, its frames are
 * ignored instead.
 *
 * @module
 */

/**
 * A kind of isolate, registered with {@linkcode SystemOptions.transport}.
 *
 * @example Threads, without handling of their failures
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
  /** Name of the kind of isolate, used as `isolate: "tcp"`. */
  readonly name: string;
  /** True if its isolates share the memory of a SharedArrayBuffer they receive. */
  readonly sharesMemory: boolean;
  /** True if it can end an isolate that is busy. */
  readonly canKill: boolean;
  /** True if it can limit the JavaScript heap of an isolate. */
  readonly limitsMemory: boolean;
  /** Throws an error with one sentence if no isolate can be started. Called before a long run. */
  check?(): void;
  /** Opens the transport when a system starts its first isolate of this kind. */
  open(options: TransportOptions): OpenTransport;
}

/** Options that a system passes to a transport. */
export interface TransportOptions {
  /** Time that an isolate may take to end after its last actor before it is killed, in
   * milliseconds. */
  readonly stopGraceMs: number;
}

/** A transport opened by a system. Its resources are closed after its last isolate has ended. */
export interface OpenTransport {
  /**
   * Starts an isolate.
   *
   * @throws {DOMException} `DataCloneError` if `boot` cannot be cloned.
   * @throws if the isolate cannot be started; no resources are left then.
   */
  start(request: StartRequest): RemoteIsolate;
  /**
   * Receives pending frames. Called after each turn of the event loop, for transports whose events
   * the loop would deliver too slowly. Idle messages are handled after the messages received here.
   */
  drain?(): Promise<void> | undefined;
  /** Releases the resources of an invitation's address that is not passed on to an isolate. */
  decline?(address: unknown): void;
}

/** The start of an isolate. */
export interface StartRequest {
  /** Its number in the system. */
  readonly isolate: number;
  /** Limit of its heap in MiB, where the transport can set one. */
  readonly memoryLimitMb: number | undefined;
  /** The first frame that the isolate receives. */
  readonly boot: unknown;
  /** Buffers in `boot` to move. */
  readonly transfer: readonly ArrayBuffer[];
  /** Must be called with each frame of the isolate, in the order in which they were sent. */
  readonly receive: (frame: unknown) => void;
}

/**
 * An isolate, seen from the root. The root treats it as gone if its transport breaks the contract,
 * for example if `send` throws or if the end is not reported within twice the grace.
 */
export interface RemoteIsolate {
  /**
   * Sends a frame. Frames arrive in order and complete, or not at all, with their current values:
   * the buffers in `transfer` are moved, the rest is copied.
   *
   * @throws {DOMException} `DataCloneError` if the frame cannot be cloned; nothing is sent then.
   */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** Lets an isolate without actors end, and kills it after the grace. */
  close(): void;
  /** Kills the isolate, even if it is busy. */
  kill(): void;
  /** Resolves with the cause, as in "exited with code 3", when the isolate has ended and all its
   * frames are received. It must resolve in every case, regardless of how the isolate ends. */
  readonly gone: Promise<string>;
  /** Settles when all resources of the isolate are released. */
  readonly ended: Promise<void>;
  /** Stops waiting for its end: `ended` settles soon. Called only after `gone` has resolved. */
  abandon?(): void;
  /** Excludes its host, which has sent a message that an actor could not handle. Absent: the host is
   * trusted. */
  readonly exclude?: ((why: string) => void) | undefined;
  /** Returns true if the isolate is busy or was since the last call. Absent: it counts as busy if a
   * frame has arrived. */
  isAlive?(): boolean;
}

/** The connection of an isolate to the root, passed by its module to {@linkcode serveIsolate}. */
export interface IsolateSide {
  /** Sends a frame to the root, as {@linkcode RemoteIsolate.send}. */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** Receives pending frames, as {@linkcode OpenTransport.drain}, and sends large frames before the
   * next step. */
  drain?(): Promise<void> | undefined;
  /** Two 32-bit counts, of begun and of ended work of {@linkcode Context.busy}, that another thread
   * reads. Absent: they are not read. */
  readonly heartbeat?: SharedArrayBuffer | undefined;
  /** Opens direct connections to other isolates. */
  readonly peers?: PeerConnector | undefined;
  /** Adds arrays with other isolates without messages. */
  readonly collectives?: Collectives | undefined;
}

/** An array for a sum over a group. */
export interface Addend {
  /** Number of the group, among those the transport was created with. */
  readonly group: number;
  /** Index of this member in the group. */
  readonly member: number;
  /** The array, which must be its whole buffer; it is moved. */
  readonly values: Float32Array<ArrayBuffer>;
}

/** Sums over isolates, computed by the network. */
export interface Collectives {
  /**
   * Adds the arrays of all members of a group, element by element. The n-th array of a member is
   * added to the n-th arrays of the others, which have the same length. All members get bitwise
   * equal sums.
   */
  allReduce(addend: Addend, done: (sums: Float32Array<ArrayBuffer>) => void): void;
}

/** Opens connections between isolates of one transport. Each carries frames in one direction. */
export interface PeerConnector {
  /**
   * Invites an isolate to connect and receive from this one.
   *
   * @param connected called with the sending end when the isolate has connected.
   */
  invite(isolate: number, connected: (sender: PeerSender) => void): Invitation;
  /**
   * Connects to an isolate that has sent an invitation. Its frames must wait until {@linkcode
   * PeerReceiver.listen}.
   */
  connect(isolate: number, address: unknown, receive: (frame: unknown) => void): PeerReceiver;
}

/** The data that an isolate needs to connect. */
export interface Invitation {
  /** The address: any value that a frame can hold. */
  readonly address: unknown;
  /** Objects in the address to move to the other isolate. */
  readonly transfer: readonly Transferable[];
}

/** The sending end of a connection. */
export interface PeerSender {
  /** Sends a frame, as {@linkcode RemoteIsolate.send}. */
  send(frame: unknown, transfer: readonly Transferable[]): void;
  /** Resolves when all frames are sent. */
  finish(): Promise<void>;
  /** Closes the connection. Unsent frames are lost. */
  close(): void;
}

/** The receiving end of a connection. */
export interface PeerReceiver {
  /** Starts receiving. */
  listen(): void;
  /** Resolves when all frames sent by a dead sender are received; if `listen` was not called, none
   * are. */
  settle(): Promise<void>;
  /** Closes the connection. */
  close(): void;
}
