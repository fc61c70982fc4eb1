/**
 * The module that runs in a Deno worker.
 *
 * @module
 */

import { PortConnector } from "./port_connector.ts";
import { serveWorker } from "./serve_worker.ts";

serveWorker(() => new PortConnector());
