import assert from "node:assert/strict";
import {
  type Door,
  openDoor,
  ringAt,
  SECRET_BYTES,
} from "../../../../../actors/runtime/transports/mpi/doorbell/door.ts";
import {
  type LinkParts,
  receiveParcels,
} from "../../../../../actors/runtime/transports/mpi/link.ts";

const SECRET = Uint8Array.from({ length: SECRET_BYTES }, (_, i) => i + 1);

/** The door of rank 3, and who was let in. */
function doorOf3(greetingMs?: number) {
  const guests: { readonly rank: number; readonly conn: Deno.Conn }[] = [];
  const door = openDoor("127.0.0.1", (conn, rank) => guests.push({ rank, conn }), greetingMs);
  door.admit(3, SECRET);
  return {
    address: door.address,
    guests,
    [Symbol.dispose]() {
      door.close();
      for (const { conn } of guests) conn.close();
    },
  };
}

/** A stranger at a door, who says this and waits until it is sent away; returns how much it heard. */
async function knock({ hostname, port }: Door["address"], says: Uint8Array): Promise<number> {
  using conn = await Deno.connect({ hostname, port });
  await conn.write(says);
  return await conn.read(new Uint8Array(1)).catch(() => null) ?? 0;
}

const asRank = async (to: number, { address }: { address: Door["address"] }, secret = SECRET) =>
  (await ringAt(address, 5, to, secret)).close();

Deno.test("a rank that knows the secret is let in, and told from others", async () => {
  using door = doorOf3();
  await asRank(3, door);
  assert.deepEqual(door.guests.map(({ rank }) => rank), [5]);
});

Deno.test("a stranger is sent away: wrong secret, another's door, noise, half a greeting", async () => {
  using door = doorOf3(200);
  for (const at of [0, 31]) {
    await assert.rejects(asRank(3, door, SECRET.with(at, 99)), /the connection was closed|reset/);
  }
  await assert.rejects(asRank(4, door), /the connection was closed|reset/);
  assert.equal(await knock(door.address, new Uint8Array(4096)), 0);
  assert.equal(await knock(door.address, SECRET.subarray(0, 20)), 0);
  assert.equal(await knock(door.address, new Uint8Array()), 0);
  assert.deepEqual(door.guests, []);
  await asRank(3, door);
});

Deno.test("a greeting that comes byte by byte is too slow, be it right", async () => {
  using door = doorOf3(200);
  using conn = await Deno.connect(door.address);
  const end = conn.read(new Uint8Array(1)).catch(() => null);
  const greeting = [...SECRET.subarray(0, 32), 0, 0, 0, 5, 0, 0, 0, 3];
  const drip = setInterval(
    () => greeting.length > 0 && conn.write(Uint8Array.of(greeting.shift()!)).catch(() => {}),
    20,
  );
  assert.equal(await end, null);
  clearInterval(drip);
  assert.deepEqual(door.guests, []);
});

Deno.test("a flood of guests who say nothing keeps few of them, and no rank out", async () => {
  using door = doorOf3(60_000);
  let isOver = false, sentAway = 0;
  const crowd = await Promise.all(Array.from({ length: 300 }, () => Deno.connect(door.address)));
  for (const conn of crowd) {
    conn.read(new Uint8Array(1)).catch(() => null).then(() => isOver || sentAway++);
  }
  await asRank(3, door);
  while (sentAway < 300 - 64) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(sentAway <= 300 - 63, `${sentAway}`);
  isOver = true;
  for (const conn of crowd) conn.close();
});

Deno.test("who stands at a door without the secret is not told from whom messages come", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const stranger = listener.accept().then(async (conn) => {
    await conn.write(new Uint8Array(32));
    return conn;
  });
  const { hostname, port } = listener.addr as Deno.NetAddr;
  await assert.rejects(ringAt({ hostname, port }, 5, 3, SECRET), /who opens is a stranger/);
  (await stranger).close();
});

Deno.test("an announcement of more than a parcel can have is refused before it is believed", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  for (
    const [numbers, sentence] of [
      [[1, 2 ** 52, 0], /from rank 5: the body it announces must be .* received 4503599627370496/],
      [[1, 8, 2 ** 40], /count of buffers/],
      [[1, NaN, 0], /body.*received NaN/],
      [[-1, 8, 0], /isolate/],
      [[1, 0, 1, 2 ** 50], /buffer/],
    ] as const
  ) {
    const { hostname, port } = listener.addr as Deno.NetAddr;
    using conn = await Deno.connect({ hostname, port });
    using received = await listener.accept();
    await conn.write(new Uint8Array(Float64Array.from(numbers).buffer));
    const parts = { mpi: {}, progress: {} } as LinkParts; // nothing of it is used
    await assert.rejects(receiveParcels(parts, 3, 5, received, () => assert.fail()), sentence);
  }
});
