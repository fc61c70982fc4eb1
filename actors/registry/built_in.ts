/**
 * The parts that come with Troupe: found by name like all others, and replaced like them.
 *
 * @module
 */

import type { Part } from "./part.ts";

/** All of them. */
export const BUILT_IN_PARTS: readonly Part[] = [];
