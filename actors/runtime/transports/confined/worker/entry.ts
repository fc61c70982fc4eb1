/**
 * The module that runs in a confined worker: an isolate that knows no way to others but by the root.
 *
 * @module
 */

import { serveWorker } from "../../worker/serve_worker.ts";
import { serveConfined } from "../serve_confined.ts";

serveWorker(undefined, serveConfined);
