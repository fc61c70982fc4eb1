/**
 * Entry module of an isolate's worker on a host; all its frames go through the leader.
 *
 * @module
 */

import { serveWorker } from "../serve.ts";

serveWorker();
