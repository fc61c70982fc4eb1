/** Stand-in for `jsr:@std/async/deadline` where JSR cannot be reached: the same module from npm. */
// @ts-types="./deadline.d.ts"
export { deadline } from "deno-std/async/deadline.js";
