/** Actors on hosts that meet at a server of NATS behave as elsewhere. */

import assert from "node:assert/strict";
import { dirname } from "node:path";
import { credsAuthenticator } from "@nats-io/transport-node";
import { encodeFrame } from "../../../../actors/transports/codec.ts";
import { framePieces, joined } from "../../../../actors/transports/stream.ts";
import { createSystem } from "../../../../actors/transports/system.ts";
import { connectServer } from "../../../../actors/transports/nats/connection.ts";
import { joinRun } from "../../../../actors/transports/nats/host.ts";
import { BEAT, CONTROL, PIECE } from "../../../../actors/transports/nats/link.ts";
import { substream } from "../../../../kernels/random.ts";
import { atDepth } from "../../../depth.ts";
import { runContract } from "../contract.ts";
import { ARRIVALS, CROSSINGS, ISOLATE_ENDS } from "../contract/isolates.ts";
import { MESSAGES } from "../contract/messages.ts";
import { STOPS } from "../contract/stops.ts";
import type { Place } from "../contract/suite.ts";
import { thrownBy } from "../harness.ts";
import { RECORDER } from "../players.ts";
import { assertRefused } from "../../../kernels/graph/refused.ts";
import { NATS, natsTest, RUN, TestServer } from "./server.ts";

if (NATS.isThere) {
  const server = await TestServer.start(2), leader = await server.lead();
  const hosts = [1, 2].map((number) => server.host(number));
  await leader.gather(2, 60_000);
  const place: Place = { isolate: "nats", transport: leader.transport };
  runContract(place, [MESSAGES, STOPS, ISOLATE_ENDS, CROSSINGS, ARRIVALS]);
  Deno.test({
    name: "nats: hosts end with their run",
    sanitizeOps: false,
    sanitizeResources: false,
    async fn() {
      await leader[Symbol.asyncDispose]();
      await Promise.all(hosts);
      await server[Symbol.asyncDispose]();
    },
  });
} else natsTest("actors on hosts behave as elsewhere", () => {});

/** A stranger gets nothing at a server of NATS, and a host can harm itself only. */

/** Connects as a program of a stranger with the credentials of a host. */
async function stranger(server: TestServer, number: number) {
  const bytes = await Deno.readFile(server.credentials(number));
  return await connectServer({ servers: server.url, authenticator: credsAuthenticator(bytes) });
}

/** Joins a run as a program of a stranger. */
async function joinedStranger(server: TestServer, number: number) {
  const nats = await stranger(server, number), heard: Record<string, unknown>[] = [];
  nats.subscribe(`troupe.${RUN}.0.${number}`, {
    callback: (_, { data }) => {
      if (data[0] === CONTROL) heard.push(JSON.parse(new TextDecoder().decode(data.slice(1))));
    },
  });
  const to = `troupe.${RUN}.${number}.0`, facts = server.facts;
  nats.publish(to, encode({ type: "hello", session: number, facts }));
  await soon(() => heard.some(({ type }) => type === "welcome"));
  return { nats, heard, link: heard[0]!["link"] as number, to };
}

/** Waits for what the server sends; nothing for 20 s is a failure. */
async function soon(isDone: () => boolean): Promise<void> {
  for (let looks = 0; !isDone(); looks++) {
    assert.ok(looks < 2000, "nothing more has come");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const encode = (record: unknown) =>
  new Uint8Array([CONTROL, ...new TextEncoder().encode(JSON.stringify(record))]);

natsTest("without credentials, or with another run's, none connects", async () => {
  await using server = await TestServer.start(1);
  await using other = await TestServer.start(1);
  const theirs = await Deno.readFile(other.credentials(1));
  const credentials = (number: number) => server.credentials(number);
  await assertRefused("nats", [
    () => connectServer({ servers: server.url }),
    () => connectServer({ servers: server.url, authenticator: credsAuthenticator(theirs) }),
    () => server.lead({ credentials: other.credentials(0) }),
    () => server.lead({ run: "another" }),
    () => server.lead({ credentials: credentials(1) }),
    () => server.host(0),
  ], {
    URL: server.url,
    FOLDER: dirname(credentials(0)),
    ELSEWHERE: dirname(other.credentials(0)),
  });
});

natsTest("a run has one leader at a time", async () => {
  await using server = await TestServer.start(1);
  {
    await using _leader = await server.lead();
    const second =
      /^Cannot lead the run test-run: no other process may lead it, received one that is connected/;
    await assert.rejects(server.lead(), { message: second });
  }
  await using _next = await server.lead();
});

natsTest("a host can neither speak for another nor hear it", async () => {
  await using server = await TestServer.start(2);
  const said: string[] = [];
  await using leader = await server.lead({ announce: (line) => said.push(line) });
  const nats = await stranger(server, 2), refused: string[] = [];
  const watch = async () => {
    for await (const status of nats.status()) {
      if (status.type === "error") refused.push(status.error.message);
    }
  };
  watch();
  const hello = encode({ type: "hello", session: 1, facts: {} });
  nats.publish(`troupe.${RUN}.1.0`, hello);
  for (const subject of [`troupe.${RUN}.*.0`, `troupe.${RUN}.0.1`, "troupe.>", ">"]) {
    nats.subscribe(subject, { callback: () => {} });
  }
  await soon(() => refused.length === 5);
  assert.deepEqual(said, []);
  assert.equal(await leader.gather(1, 10), 0);
  await nats.close();
});

natsTest("another version, program or CPU is refused with the difference", async () => {
  await using server = await TestServer.start(1);
  await using _leader = await server.lead();
  for (const name of ["the version of Deno", "the vector instructions of the CPU"]) {
    const facts = { ...server.facts, [name]: "x" };
    const { message, exitCode } = await thrownBy(server.host(1, undefined, facts)) as Error & {
      exitCode?: number;
    };
    assert.equal(exitCode, 1);
    const start = `Cannot join the run test-run: ${name} must be that of the leader, `;
    assert.ok(message.startsWith(start) && message.endsWith(", received x"), message);
  }
});

function close(connection: Deno.Conn): void {
  try {
    connection.close();
  } catch {
    // It is closed already.
  }
}

natsTest("a leader ends within seconds where the server has stopped", async () => {
  await using server = await TestServer.start(1);
  const leader = await server.lead(), started = performance.now();
  server.stop();
  await new Promise((resolve) => setTimeout(resolve, 200));
  await leader[Symbol.asyncDispose]();
  assert.ok(performance.now() - started < 20_000);
});

natsTest("a connection that breaks again while it is restored is restored", async () => {
  await using server = await TestServer.start(1);
  const hostname = "127.0.0.1", port = Number(new URL(server.url).port), open: Deno.TcpConn[] = [];
  const between = Deno.listen({ hostname, port: 0 });
  const pass = async () => {
    for await (const near of between) {
      const far = await Deno.connect({ hostname, port });
      const isBroken = open.push(near, far) === 4;
      far.readable.pipeTo(near.writable).catch(() => {});
      if (isBroken) await near.read(new Uint8Array(1)).then(() => open.forEach(close));
      else near.readable.pipeTo(far.writable).catch(() => {});
    }
  };
  pass();
  const nats = await connectServer({
    servers: `${hostname}:${between.addr.port}`,
    authenticator: credsAuthenticator(await Deno.readFile(server.credentials(1))),
    ...{ maxReconnectAttempts: -1, reconnectTimeWait: 10, timeout: 20_000 },
  });
  const started = performance.now();
  open.forEach(close);
  for await (const { type } of nats.status()) if (type === "reconnect") break;
  assert.ok(performance.now() - started < 10_000);
  await nats.close();
  open.forEach(close);
  between.close();
});

natsTest("a host may try again where the server is away, not where it refuses", async () => {
  await using server = await TestServer.start(1);
  await using other = await TestServer.start(1);
  const { url } = server, place = { url, run: RUN, facts: server.facts, joinMs: 60_000 };
  const codeOf = async () => {
    const credentials = other.credentials(1), announce = () => {};
    const error = await thrownBy(joinRun({ ...place, credentials, announce }));
    return (error as { exitCode?: number }).exitCode;
  };
  assert.equal(await codeOf(), undefined);
  await server.kill();
  assert.equal(await codeOf(), 75);
});

natsTest("a host is lost after two seconds, and not if it reconnects", async () => {
  await using server = await TestServer.start(2);
  const said: string[] = [], wait = (ms: number) => new Promise((done) => setTimeout(done, ms));
  const announce = (line: string) => said.push(line);
  await using _leader = await server.lead({ timeoutMs: 60_000, announce });
  const [dead, living] = [await joinedStranger(server, 1), await joinedStranger(server, 2)];
  await dead.nats.close();
  let { nats } = living;
  for (let times = 0; times < 3; times++) {
    await nats.close();
    await wait(800);
    nats = await stranger(server, 2);
    nats.subscribe(`troupe.${RUN}.0.2`, { callback: () => {} });
    nats.publish(living.to, beatOf(living.link));
    await nats.flush();
  }
  const lost = "host 1 is lost: it is not connected to the server";
  assert.deepEqual(said, ["host 1 has joined", "host 2 has joined", lost]);
  // After a loss of the server, a host may be back later than the leader.
  await nats.close();
  await server.kill();
  await server.begin();
  await wait(3500);
  assert.deepEqual(said.slice(3), []);
});

/** Reports that no agent sends. */
const REPORTS: readonly unknown[] = [
  { kind: "gone", isolate: 1, cause: "of another host" },
  { kind: "frame", isolate: 1, frame: { kind: "done", reason: "stopped" } },
  { kind: "frame", isolate: 2 ** 40, frame: { kind: "kill", isolate: 1, why: "" } },
  { kind: "alive" },
  null,
  [1, 2],
];

/** Returns a beat of a host that has received nothing. */
function beatOf(link: number): Uint8Array {
  const beat = new Uint8Array(14);
  beat[0] = BEAT;
  new DataView(beat.buffer).setUint32(1, link);
  return beat;
}

/** Returns a forged or truncated message of a host with a link. */
function forged(link: number, seed: number): Uint8Array {
  const generator = substream(seed, "forgery");
  const next = (below: number) => (generator.next() >>> 0) % below;
  const piece = (contents: Uint8Array) => {
    const message = new Uint8Array(13 + contents.length), view = new DataView(message.buffer);
    view.setUint8(0, PIECE);
    view.setUint32(1, link);
    message.set(contents, 13);
    return message;
  };
  const bytes = Uint8Array.from({ length: 16 + next(100) }, () => next(256));
  const beat = beatOf(link), report = joined(framePieces(REPORTS[seed % REPORTS.length], []));
  const head = new Uint8Array(Float64Array.of(8, 1, 2 ** 50).buffer), length = 1 + next(2 ** 31);
  const heard = beat.slice();
  new DataView(heard.buffer).setUint32(9, length);
  return [
    piece(bytes),
    piece(report),
    beat.subarray(0, next(14)),
    heard,
    encode({ type: bytes.join() }),
    encode({ type: "hello", session: "1" }).subarray(0, next(20)),
    new Uint8Array([CONTROL, ...bytes]),
    piece(joined([head, encodeFrame({}, []).body.slice()])),
  ][seed % 8]!;
}

const FORGED = atDepth(64, 500);

/** A host whose message has headers that cannot be read. */
const BROKEN = 3;
const BROKEN_HEADERS = { encode: () => new TextEncoder().encode("NATS/1.0\r\n\0 : 1\r\n\r\n") };

natsTest(`each of ${FORGED} forged or truncated messages excludes its host`, async () => {
  await using server = await TestServer.start(FORGED + 1);
  const said: string[] = [];
  const leader = await server.lead({ announce: (line) => said.push(line) });
  const honest = server.host(FORGED + 1);
  await leader.gather(1, 60_000);
  {
    await using system = createSystem({ transport: leader.transport });
    const at = { id: "recorder", isolate: "nats" };
    const recorder = system.spawn(RECORDER, undefined, at);
    await system.ask(recorder, { type: "Read" });
    for (let number = 1; number <= FORGED; number++) {
      const { nats, heard, link, to } = await joinedStranger(server, number);
      if (number === BROKEN) nats.publish(to, "", { headers: BROKEN_HEADERS as never });
      else nats.publish(to, forged(link, number));
      await soon(() => heard.some(({ type }) => type === "refused"));
      const facts = server.facts;
      nats.publish(to, encode({ type: "hello", session: number + 1, facts }));
      await soon(() => heard.filter(({ type }) => type === "refused").length === 2);
      await nats.close();
      assert.match(said.at(-1)!, new RegExp(`^host ${number} is lost: it was excluded: `));
    }
    assert.deepEqual(await system.ask(recorder, { type: "Read" }), []);
  }
  const lost = said.filter((line) => line.includes(" is lost: "));
  assert.equal(lost.length, FORGED);
  await leader[Symbol.asyncDispose]();
  await honest;
});
