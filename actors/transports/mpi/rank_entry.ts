/**
 * Entry module of an isolate's worker on a rank; it reaches other isolates over MPI.
 *
 * @module
 */

import { serveWorker } from "../serve.ts";
import { MpiConnector, type RankOrders } from "./agent.ts";

serveWorker((more) => {
  const { own, port } = more as RankOrders;
  return new MpiConnector(own, port);
});
