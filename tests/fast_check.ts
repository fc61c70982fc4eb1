/**
 * Property tests with a fixed seed: the tests of a commit give the same result everywhere. The
 * environment variable `TROUPE_SEED` takes another one; a failure prints the seed and the path.
 */

import fc from "fast-check";

fc.configureGlobal({ seed: Number(Deno.env.get("TROUPE_SEED") ?? 1) });

export default fc;
