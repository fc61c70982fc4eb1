/**
 * The module that runs in a Deno worker of a rank: an isolate that reaches others over MPI.
 *
 * @module
 */

import { serveWorker } from "../serve.ts";
import { MpiConnector, type RankOrders } from "./agent.ts";

serveWorker((more) => {
  const { own, port } = more as RankOrders;
  return new MpiConnector(own, port);
});
