/**
 * Entry module of a Deno worker.
 *
 * @module
 */

import { openPortConnector } from "./ports.ts";
import { serveWorker } from "./serve.ts";

serveWorker(openPortConnector);
