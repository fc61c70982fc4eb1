/**
 * Which Troupe this is.
 *
 * @module
 */

import about from "../../deno.json" with { type: "json" };

/** What `--version` prints. */
export const VERSION = `troupe ${about.version}`;
