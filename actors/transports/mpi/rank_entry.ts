/**
 * Entry module of an isolate's worker on a rank; it reaches other isolates over MPI.
 *
 * @module
 */

import { serveWorker } from "../serve.ts";
import { openMpiConnector, type RankOrders } from "./agent.ts";

serveWorker((more) => openMpiConnector(more as RankOrders));
