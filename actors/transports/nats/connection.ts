/**
 * The connection of a member of a run to the server of NATS.
 *
 * @module
 */

import type { Msg, NodeConnectionOptions } from "@nats-io/transport-node";
import { messageOf } from "../../runtime/failure.ts";
import { LEADER, type Member, readCredentials, subjectOf } from "./credentials.ts";
import { BEAT, CONTROL } from "./link.ts";

/** The meeting place of a run, and the credentials of this process. */
export interface MeetingPlace {
  /** URL of the server: `nats://` or `tls://`. */
  readonly url: string;
  /** Path of the credentials. */
  readonly credentials: string;
  /** The name of the run. */
  readonly run: string;
}

/** Handles what a connection hears. */
export interface Hearing {
  /** Handles a message of a member. */
  readonly hear: (from: number, message: Uint8Array) => void;
  /** Called when the server delivers a beat to nobody, as that member is not connected. */
  readonly absent?: (member: number) => void;
  /** Called when the connection was lost and is there again. */
  readonly reconnected: () => void;
  /** Called when it is closed for good, for example because the server refuses the credentials. */
  readonly closed: (error: Error) => void;
}

/** Milliseconds between two beats, and between two attempts to reconnect. */
export const BEAT_MS = 250;

/** The status of a message that the server sends if nobody hears a request. */
const NO_RESPONDERS = 503;

/** An open connection. */
export type Connection = Awaited<ReturnType<typeof connectMember>>;

/**
 * Connects to the server.
 *
 * @throws {TypeError} when the credentials cannot be used.
 * @throws {Error} when the server cannot be reached, or refuses them.
 */
export async function connectMember(place: MeetingPlace, hearing: Hearing) {
  const { hear, reconnected, closed, absent } = hearing;
  const { url, credentials, run } = place, member = await readCredentials(credentials, run);
  const nats = await connectTo(url, member);
  const { number } = member, from = number === LEADER ? "*" : LEADER;
  let isConnected = true;
  nats.subscribe(subjectOf(run, from, number), {
    callback(error, message) {
      // Without a permission there are no messages: the connection is closed with the reason.
      if (error) return void nats.close().then(() => closed(error));
      const member = Number(message.subject.split(".")[2]);
      if (statusOf(message) === NO_RESPONDERS) absent?.(member);
      else hear(member, message.data);
    },
  });
  const watch = async () => {
    for await (const { type } of nats.status()) {
      if (type === "disconnect") isConnected = false;
      if (type !== "reconnect") continue;
      isConnected = true;
      reconnected();
    }
  };
  watch();
  nats.closed().then((error) => error && closed(error));
  const publish = (to: number, message: Uint8Array) => {
    if (!isConnected) return;
    // The server answers, in the name of the other, a beat that it delivers to nobody.
    const reply = subjectOf(run, to, number), asks = absent && message[0] === BEAT;
    nats.publish(subjectOf(run, number, to), message, asks ? { reply } : {});
  };
  return {
    number,
    /** Maximum bytes of a message. */
    maxBytes: nats.info!.max_payload,
    /** Publishes a message to a member, which is lost while the server is away. */
    publish,
    /** Publishes a record. */
    say: (to: number, record: object) => publish(to, encodeControl(record)),
    /** Closes the connection after all messages are published. */
    close: () => nats.isClosed() ? Promise.resolve() : nats.drain(),
  };
}

/**
 * Connects to a server with options of the library.
 *
 * The library removes the listeners of a socket that it destroys. An error that the socket emits
 * later, for example because a server that refuses the credentials resets the connection, would then
 * end the process. Therefore sockets keep their listeners.
 */
export async function connectServer(options: NodeConnectionOptions) {
  const { connect } = await import("@nats-io/transport-node");
  const { NodeTransport } = await import("@nats-io/transport-node/lib/node_transport.js");
  const { prototype } = NodeTransport;
  setUp ??= prototype.setupHandlers;
  prototype.setupHandlers = function () {
    setUp!.call(this);
    this.socket.removeAllListeners = () => this.socket;
  };
  return await connect(options);
}

let setUp: (() => void) | undefined;

async function connectTo(url: string, { bytes }: Member) {
  const { credsAuthenticator } = await import("@nats-io/transport-node");
  try {
    return await connectServer({
      servers: url,
      authenticator: credsAuthenticator(bytes),
      ...url.startsWith("tls:") && { tls: {} },
      maxReconnectAttempts: -1,
      reconnectTimeWait: BEAT_MS,
      reconnectJitter: BEAT_MS,
    });
  } catch (error) {
    throw new Error(
      `Cannot join the run: ${url} must be a server of NATS that accepts the credentials, received ${
        JSON.stringify(messageOf(error))
      }`,
      { cause: error },
    );
  }
}

function statusOf(message: Msg): number | undefined {
  try {
    return message.headers?.code;
  } catch {
    return undefined; // a stranger has sent it
  }
}

function encodeControl(record: object): Uint8Array {
  return new Uint8Array([CONTROL, ...new TextEncoder().encode(JSON.stringify(record))]);
}

/** Reads a record. @throws {SyntaxError} when a message is none. */
export function decodeControl(message: Uint8Array): Record<string, unknown> {
  const record = JSON.parse(new TextDecoder().decode(message.subarray(1)));
  if (message[0] !== CONTROL || Object(record) !== record) {
    throw new SyntaxError("a message is no record");
  }
  return record;
}
