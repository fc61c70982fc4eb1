/**
 * Property tests with a seed that stays: a run tells the same of a commit wherever it runs. The
 * environment variable `TROUPE_SEED` takes another one; a failure prints the seed and the path.
 */

import fc from "fast-check";

fc.configureGlobal({ seed: Number(Deno.env.get("TROUPE_SEED") ?? 1) });

export default fc;
