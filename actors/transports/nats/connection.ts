/**
 * The connection of a member of a run to the server of NATS.
 *
 * [Note: sender of a message] A NATS message has no sender. So the subject contains it,
 * `troupe.RUN.FROM.TO`, and the server lets a member publish only under its own FROM, and receive only
 * messages to itself.
 *
 * @module
 */

import { deadline } from "@std/async/deadline";
import type { Msg, NatsConnection, NodeConnectionOptions } from "@nats-io/transport-node";
import { messageOf } from "../../runtime/failure.ts";
import { resultOr } from "../../runtime/types.ts";
import { BEAT, CONTROL } from "./link.ts";

/** The leader's number among the members of a run. */
export const LEADER = 0;

/** Returns the subject of messages between two members; `*` matches any. */
const subjectOf = (run: string, from: number | "*" | "none", to: number | "*"): string =>
  `troupe.${run}.${from}.${to}`;

/** Returns whether a run can have this name, which is part of subjects. */
export const isRunName = (name: string): boolean => /^[\w-]{1,64}$/.test(name);

/** Bytes of a file of credentials. */
const CREDENTIALS_BYTES_MAX = 2 ** 16;

/**
 * Reads a file of credentials; returns its contents, and the number of the member that they name.
 *
 * @throws {TypeError} when the file has no credentials, or those of another run or role.
 */
export async function readCredentials(path: string, run: string, leads: boolean) {
  const refuse = (must: string, received: string): never => {
    throw new TypeError(`Cannot use ${path}: it must ${must}, received ${received}`);
  };
  const { parseCreds } = await import("@nats-io/jwt");
  const bytes = await Deno.stat(path).then(({ isFile, size }) => {
    if (!isFile) throw new Error("another kind of file");
    if (size > CREDENTIALS_BYTES_MAX) throw new Error(`${size} bytes`);
    return Deno.readFile(path);
  }).catch((error) => refuse("be a file of credentials that can be read", messageOf(error)));
  const { uc } = await parseCreds(bytes).catch(() => {
    return refuse("have the credentials of a member of a run", "another text");
  });
  const [, of, number] = /^troupe\.([\w-]+)\.(\d+)\.\*$/.exec(uc.nats.pub?.allow?.[0] ?? "") ??
    refuse("let a member of a run publish under its number", JSON.stringify(uc.nats.pub ?? {}));
  if (of !== run) refuse(`be of the run ${run}`, `those of ${of}`);
  const isLeaders = Number(number) === LEADER;
  if (isLeaders !== leads) {
    const received = isLeaders ? "those of the leader" : `those of host ${number}`;
    refuse(`be of ${leads ? "the leader of the run" : "a host"}`, received);
  }
  return { number: Number(number), bytes };
}

/** Bytes that may wait at the server for one member: a window for each of its links. */
const PENDING_MAX = "256MB";

/** Without these, the server takes limits of 0. */
const UNLIMITED = { subs: -1, data: -1, payload: -1 } as const;

/**
 * Makes the configuration of the nats-server of a run, and the credentials of its members, the
 * leader first.
 *
 * @param hosts how many may join.
 * @param listen where the server listens, such as 0.0.0.0:4222.
 */
export async function makeCredentials(
  run: string,
  hosts: number,
  listen: string,
) {
  const { encodeAccount, encodeOperator, encodeUser, fmtCreds } = await import("@nats-io/jwt");
  const { createAccount, createOperator, createUser } = await import("@nats-io/nkeys");
  const operator = createOperator(), account = createAccount();
  const limits = { conn: -1, leaf: 0, ...UNLIMITED, imports: 0, exports: 0, wildcards: true };
  const signed = await encodeAccount(run, account, { limits }, { signer: operator });
  const members = Array.from({ length: hosts + 1 }, async (_, number) => {
    const user = createUser();
    const name = number === LEADER ? `${run} leader` : `${run} host ${number}`;
    const jwt = await encodeUser(name, user, account, {
      ...UNLIMITED,
      pub: { allow: [subjectOf(run, number, "*")] },
      // Hosts receive messages of the leader only.
      sub: { allow: [subjectOf(run, number === LEADER ? "*" : LEADER, number)] },
    });
    return fmtCreds(jwt, user);
  });
  const server = `# The server of the Troupe run ${run}: nats-server -c FILE
listen: "${listen}"
max_payload: 8MB
max_pending: ${PENDING_MAX}
operator: ${await encodeOperator("troupe", operator)}
resolver: MEMORY
resolver_preload: { ${account.getPublicKey()}: ${signed} }
`;
  return { server, members: await Promise.all(members) };
}

/** The meeting place of a run, and the credentials of this process. */
export interface MeetingPlace {
  /** URL of the server: `nats://` or `tls://`. */
  readonly url: string;
  /** Path of the credentials. */
  readonly credentials: string;
  /** The name of the run. */
  readonly run: string;
  /** Milliseconds within which the server must answer. Default 20,000. */
  readonly joinMs?: number | undefined;
}

/** Handlers of the events of a connection. */
interface Hearing {
  /** Handles a message of a member. */
  readonly hear: (from: number, message: Uint8Array) => void;
  /** Called when the server cannot deliver a beat because that member is not connected. */
  readonly absent?: (member: number) => void;
  /** Called when a lost connection is restored. */
  readonly reconnected: () => void;
  /** Called when it is closed permanently, for example because the server refuses the credentials. */
  readonly closed: (error: Error) => void;
}

/** Milliseconds between two beats, and between two attempts to reconnect. */
export const BEAT_MS = 250;

/** Status of the server's answer to a request without a subscriber. */
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
  const { credentials, run, url } = place, leads = absent !== undefined;
  const { number, bytes } = await readCredentials(credentials, run, leads);
  const nats = await connectTo(place, bytes), from = leads ? "*" : LEADER;
  if (leads && await isLed(nats, run)) {
    await nats.close();
    const received = `one that is connected to ${shown(url)}`;
    throw new Error(
      `Cannot lead the run ${run}: no other process may lead it, received ${received}`,
    );
  }
  let isConnected = true;
  nats.subscribe(subjectOf(run, from, number), {
    callback(error, message) {
      // Without a permission there are no messages: the connection is closed with the reason.
      if (error) {
        isConnected = false;
        return void nats.close().then(() => closed(error));
      }
      const member = Number(message.subject.split(".")[2]);
      if (statusOf(message) === NO_RESPONDERS) absent?.(member);
      else if (member !== number) hear(member, message.data);
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
  nats.closed().then((error) => {
    isConnected = false;
    if (error) closed(error);
  });
  const publish = (to: number, message: Uint8Array) => {
    if (!isConnected) return;
    // If the server cannot deliver the beat, it answers under the subject of the other member.
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
    say: (to: number, record: object) =>
      publish(to, new Uint8Array([CONTROL, ...new TextEncoder().encode(JSON.stringify(record))])),
    /** Closes the connection after all messages are published. */
    close: async () => {
      // Without the server the last messages cannot be published: a drain fails, or does not end.
      if (!nats.isClosed()) await deadline(nats.drain(), DRAIN_MS).catch(() => nats.close());
    },
  };
}

/** Returns whether a leader is connected: if not, the server answers, under a subject of no member. */
async function isLed(nats: NatsConnection, run: string): Promise<boolean> {
  const reply = subjectOf(run, "none", LEADER);
  let isThere = true;
  const answers = nats.subscribe(reply, { callback: () => void (isThere = false) });
  nats.publish(subjectOf(run, LEADER, LEADER), "", { reply });
  await nats.flush();
  answers.unsubscribe();
  return isThere;
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
  const nats = await connect(options);
  // When a server ends before it has answered a reconnecting client, the library waits this long.
  (nats as unknown as { readonly options: NodeConnectionOptions }).options.timeout = CONNECT_MS;
  return nats;
}

let setUp: (() => void) | undefined;

/** Returns an address without a password. */
const shown = (url: string) => url.replace(/\/\/[^@/]*@/, "//");

/** Maximum milliseconds in which the last messages are published. */
const DRAIN_MS = 5000;

/** Minimum milliseconds to wait for the answer of a server. */
const CONNECT_MS = 2000;

async function connectTo({ url, joinMs }: MeetingPlace, credentials: Uint8Array) {
  const { credsAuthenticator } = await import("@nats-io/transport-node");
  try {
    return await connectServer({
      servers: url,
      authenticator: credsAuthenticator(credentials),
      ...url.startsWith("tls:") && { tls: {} },
      maxReconnectAttempts: -1,
      reconnectTimeWait: BEAT_MS,
      reconnectJitter: BEAT_MS,
      ...joinMs !== undefined && { timeout: Math.max(joinMs, CONNECT_MS) },
    });
  } catch (cause) {
    const must = "must be a server of NATS that accepts the credentials";
    const received = JSON.stringify(messageOf(cause));
    const error = new Error(`Cannot join the run: ${shown(url)} ${must}, received ${received}`, {
      cause,
    });
    throw isAway(cause as Error) ? Object.assign(error, { exitCode: AWAY }) : error;
  }
}

/** Another attempt may succeed: EX_TEMPFAIL of sysexits.h. */
const AWAY = 75;

/** Returns whether a server cannot be reached at present, rather than refuses this member. */
function isAway(error: Error): boolean {
  const { code } = (error.cause ?? error) as { readonly code?: unknown };
  return error.name === "TimeoutError" || /^E[A-Z]+$/.test(String(code));
}

/** Returns the status of a message; undefined for invalid headers from an untrusted sender. */
const statusOf = (message: Msg): number | undefined =>
  resultOr(() => message.headers?.code, undefined);

/** Reads a control record. @throws {SyntaxError} when the message is not a record. */
export function decodeControl(message: Uint8Array): Record<string, unknown> {
  const record = JSON.parse(new TextDecoder().decode(message.subarray(1)));
  if (message[0] !== CONTROL || Object(record) !== record) {
    throw new SyntaxError("a message is no record");
  }
  return record;
}
