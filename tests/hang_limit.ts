/**
 * What has not come by then hangs. No test asks how fast something is: a busy machine may take its
 * time, and speed belongs to `bench/`.
 */
export const HANG_LIMIT_MS = 300_000;
