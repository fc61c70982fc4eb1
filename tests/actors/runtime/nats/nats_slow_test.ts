/** Actors on hosts that meet at a server of NATS behave as elsewhere. */

import { IS_DEEP } from "../../../depth.ts";
import { testNeeding } from "../../../needs.ts";
import { runContract } from "../contract.ts";
import { CROSSINGS, ISOLATE_ENDS } from "../contract/isolates.ts";
import { MESSAGES } from "../contract/messages.ts";
import { STOPS } from "../contract/stops.ts";
import { type Place, register } from "../contract/suite.ts";
import { NATS, TestServer } from "./server.ts";

if (NATS.isThere) {
  const server = await TestServer.start(2), leader = await server.lead();
  const hosts = [1, 2].map((number) => server.host(number));
  await leader.gather(2, 60_000);
  const place: Place = { isolate: "nats", transport: leader.transport };
  if (IS_DEEP) runContract(place);
  else for (const suite of [MESSAGES, STOPS, ISOLATE_ENDS, CROSSINGS]) register(place, suite);
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
} else testNeeding(NATS, "actors on hosts behave as elsewhere", () => {});
