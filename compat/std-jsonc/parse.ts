/** Stand-in for `jsr:@std/jsonc/parse` where JSR cannot be reached: the same module from npm. */
// @ts-types="./parse.d.ts"
export { parse } from "deno-std/jsonc/parse.js";
