/** The size of a test: small in `deno task test`, exhaustive in `deno task test:deep`. */

/** True in `deno task test:deep`. */
export const IS_DEEP = Deno.env.get("TROUPE_TEST") === "deep";

/** Chooses a size, a count or a list of cases. */
export const atDepth = <T>(normal: T, deep: T): T => IS_DEEP ? deep : normal;
