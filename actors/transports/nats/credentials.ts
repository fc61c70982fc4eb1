/**
 * Credentials of the members of a run: member 0 is its leader, the others are its hosts.
 *
 * [Note: who speaks] A message of NATS names no sender. So the subject does,
 * `troupe.RUN.FROM.TO`, and the server lets a member publish only under its own FROM, and receive only
 * messages to itself.
 *
 * @module
 */

import { messageOf } from "../../runtime/failure.ts";

/** The leader's number among the members of a run. */
export const LEADER = 0;

/** Returns the subject of messages between two members; `*` matches any. */
export const subjectOf = (run: string, from: number | "*", to: number | "*"): string =>
  `troupe.${run}.${from}.${to}`;

/** Returns whether a run can have this name, which is part of subjects. */
export const isRunName = (name: string): boolean => /^[\w-]{1,64}$/.test(name);

/** A member of a run, as its credentials name it. */
export interface Member {
  readonly run: string;
  readonly number: number;
  /** The contents of the file. */
  readonly bytes: Uint8Array;
}

/**
 * Reads a file of credentials.
 *
 * @throws {TypeError} when it is none, or of another run.
 */
export async function readCredentials(path: string, run: string): Promise<Member> {
  const refuse = (must: string, received: string): never => {
    throw new TypeError(`Cannot use ${path}: it must ${must}, received ${received}`);
  };
  const { parseCreds } = await import("@nats-io/jwt");
  const bytes = await Deno.readFile(path).catch((error) => {
    return refuse("be a file of credentials that can be read", messageOf(error));
  });
  const { uc } = await parseCreds(bytes).catch(() => {
    return refuse("have the credentials of a member of a run", "another text");
  });
  const [, of, number] = /^troupe\.([\w-]+)\.(\d+)\.\*$/.exec(uc.nats.pub?.allow?.[0] ?? "") ??
    refuse("let a member of a run publish under its number", JSON.stringify(uc.nats.pub ?? {}));
  if (of !== run) refuse(`be of the run ${run}`, `those of ${of}`);
  return { run, number: Number(number), bytes };
}

/** The files of a run: the configuration of its server, and the credentials of each member. */
export interface RunCredentials {
  /** The configuration of nats-server. */
  readonly server: string;
  /** The credentials of the leader, then those of each host. */
  readonly members: readonly Uint8Array[];
}

/** Bytes that may wait at the server for one member: a window for each of its links. */
const PENDING_MAX = "256MB";

/** Without these, the server takes limits of 0. */
const UNLIMITED = { subs: -1, data: -1, payload: -1 } as const;

/**
 * Makes the credentials of a run.
 *
 * @param hosts how many may join.
 * @param listen where the server listens, such as 0.0.0.0:4222.
 */
export async function makeCredentials(
  run: string,
  hosts: number,
  listen: string,
): Promise<RunCredentials> {
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
      // Hosts hear the leader only.
      sub: { allow: [subjectOf(run, number === LEADER ? "*" : LEADER, number)] },
    });
    return fmtCreds(jwt, user);
  });
  const server = `# The server of the Troupe run ${run}: nats-server -c FILE
listen: ${listen}
max_payload: 8MB
max_pending: ${PENDING_MAX}
operator: ${await encodeOperator("troupe", operator)}
resolver: MEMORY
resolver_preload: { ${account.getPublicKey()}: ${signed} }
`;
  return { server, members: await Promise.all(members) };
}
