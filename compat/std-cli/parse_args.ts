/** Stand-in for `jsr:@std/cli/parse-args` where JSR cannot be reached: the same module from npm. */
// @ts-types="./parse_args.d.ts"
export { parseArgs } from "deno-std/cli/parse_args.js";
