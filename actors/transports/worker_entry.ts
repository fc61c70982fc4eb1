/**
 * Entry module of a Deno worker.
 *
 * @module
 */

import { PortConnector } from "./ports.ts";
import { serveWorker } from "./serve.ts";

serveWorker(() => new PortConnector());
