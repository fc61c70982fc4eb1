/**
 * A transport that is none of the built-in ones: processes reached over TCP on loopback. It lives in
 * tests only, and is an example for your own transport.
 *
 * Each process gets its root's port and a token on the command line and connects back. All goes by
 * the root, as in a star.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import {
  type OpenTransport,
  type RemoteIsolate,
  type StartRequest,
  type Transport,
} from "../../../actors/runtime/mod.ts";
import { Outbox, receiveFrames } from "../../../actors/transports/stream.ts";
import { serveIsolate } from "../../../actors/transports/serve.ts";

const CONFIG = fileURLToPath(new URL("../../../deno.json", import.meta.url));

/** Isolates in processes, reached over TCP. */
export const TCP_TRANSPORT: Transport = {
  ...{ name: "tcp", sharesMemory: false, canKill: true, limitsMemory: false },
  open: ({ stopGraceMs }): OpenTransport => ({ start: (request) => start(request, stopGraceMs) }),
};

function start({ boot, transfer, receive }: StartRequest, stopGraceMs: number): RemoteIsolate {
  const outbox = new Outbox();
  outbox.post(boot, transfer);
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 }), token = crypto.randomUUID();
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", "--config", CONFIG, import.meta.url, `${listener.addr.port}`],
    env: { TCP_TRANSPORT_TOKEN: token },
    stdin: "null",
  }).spawn();
  const gone = Promise.withResolvers<string>();
  let isDead = false, timer: ReturnType<typeof setTimeout> | undefined;
  const kill = () => isDead || child.kill("SIGKILL");
  const heard = admit(listener, token).then(async (conn) => {
    if (!conn) return;
    outbox.attach(conn);
    await receiveFrames(conn, receive);
    conn.close();
    // A process without a root must end.
    kill();
  });
  const ended = child.status.then(async ({ code, signal }) => {
    isDead = true;
    clearTimeout(timer);
    listener.close();
    await heard;
    gone.resolve(signal ? `killed by ${signal}` : `exited with code ${code}`);
  });
  return {
    send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
    kill,
    close() {
      gone.resolve("it is done");
      if (isDead) return;
      outbox.finish();
      timer = setTimeout(kill, stopGraceMs);
    },
    gone: gone.promise,
    ended,
  };
}

/** Returns the first connection with a valid token, or undefined if the listener is closed before. */
async function admit(listener: Deno.Listener, token: string): Promise<Deno.Conn | undefined> {
  try {
    for (;;) {
      const conn = await listener.accept(), greeting = new Uint8Array(token.length);
      await conn.read(greeting);
      if (new TextDecoder().decode(greeting) === token) return conn;
      conn.close();
    }
  } catch {
    return undefined;
  }
}

/** The process: connects to its root, and ends with it. */
async function main(port: number): Promise<void> {
  const conn = await Deno.connect({ hostname: "127.0.0.1", port }), outbox = new Outbox();
  await conn.write(new TextEncoder().encode(Deno.env.get("TCP_TRANSPORT_TOKEN")));
  outbox.attach(conn);
  const isolate = serveIsolate({
    send: (frame, transfer) => outbox.post(frame, transfer as readonly ArrayBuffer[]),
  });
  await receiveFrames(conn, (frame) => isolate.receive(frame));
  await outbox.finish();
  Deno.exit(0);
}

if (import.meta.main) await main(Number(Deno.args[0]));
