/** Stand-in for `jsr:@std/async/delay` where JSR cannot be reached: the same module from npm. */
// @ts-types="./delay.d.ts"
export { delay } from "deno-std/async/delay.js";
