/** Stand-in for `jsr:@std/toml/parse` where JSR cannot be reached: the same module from npm. */
// @ts-types="./parse.d.ts"
export { parse } from "deno-std/toml/parse.js";
