/**
 * The module that runs in a Deno worker of a rank: an isolate that reaches others over MPI.
 *
 * @module
 */

import { serveWorker } from "../worker/serve_worker.ts";
import type { Address } from "./addresses.ts";
import { MpiConnector } from "./mpi_connector.ts";

/** What such a worker gets beside. */
export interface RankOrders {
  /** Where it is. */
  readonly own: Address;
  /** Its port to the communication worker. */
  readonly port: MessagePort;
}

serveWorker((more) => {
  const { own, port } = more as RankOrders;
  return new MpiConnector(own, port);
});
