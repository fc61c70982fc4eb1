/**
 * How a rank of MPICH ends when `MPI_Finalize` does not.
 *
 * [Note: an end that never comes] MPICH over TCP ends its connections, for which each peer has to
 * answer once more, and then waits until all ranks have come as far, deaf to its peers. So a peer that
 * is a little later waits for an answer for ever (MPICH 4.0 with UCX 1.13: one job in three of four
 * ranks on two hosts). All has been said and done then: who still waits for an answer, which takes all
 * of a core, says to the launcher in its place what `MPI_Finalize` would; the others, who sleep until
 * all have said it, come to their end.
 *
 * @module
 */

import process from "node:process";

/** How often it looks whether a thread is at work, in milliseconds, and the CPU time between two looks
 * that says so, in microseconds: on a busy machine it gets little. */
const LOOK_MS = 500;
const AT_WORK_US = 25_000;

/** How often it looks whether the launcher has answered, in milliseconds, and how often at most: it
 * does not where the others have gone already. */
const HEAR_MS = 20;
const MAX_LOOKS = 150;

/** What MPI_Finalize says to the launcher in the words of its protocol, PMI 1: that it has come as
 * far as this, and, when the launcher has answered that all have, that it ends. */
const COME_AS_FAR = new TextEncoder().encode("cmd=barrier_in\n");
const AT_AN_END = new TextEncoder().encode("cmd=finalize\n");

/** Tells `recv` not to wait; a pair of sockets, connected to each other. */
const DO_NOT_WAIT = 0x40, UNIX = 1, STREAM = 1;

const SYMBOLS = {
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  socketpair: { parameters: ["i32", "i32", "i32", "buffer"], result: "i32" },
  dup2: { parameters: ["i32", "i32"], result: "i32" },
} as const;

/**
 * Calls `left` when this rank has left the job in place of `MPI_Finalize`, which has just begun in
 * another thread; never where that ends by itself, or the launcher speaks another protocol.
 *
 * @returns what to call when `MPI_Finalize` has ended.
 */
export function watchFinalize(left: () => void): () => void {
  const socket = Number(Deno.env.get("PMI_FD") ?? NaN);
  if (Number.isNaN(socket)) return () => {};
  let before: NodeJS.CpuUsage | undefined;
  const look = () => {
    const { user, system } = process.cpuUsage(before), isFirst = before === undefined;
    before = process.cpuUsage();
    if (isFirst || user + system < AT_WORK_US) return;
    clearInterval(timer);
    const { symbols: { send, recv, socketpair, dup2 } } = Deno.dlopen("libc.so.6", SYMBOLS);
    const say = (words: Uint8Array<ArrayBuffer>) => send(socket, words, BigInt(words.length), 0);
    say(COME_AS_FAR);
    const answer = new Uint8Array(1024);
    let looks = 0;
    timer = setInterval(() => {
      const count = recv(socket, answer, BigInt(answer.length), DO_NOT_WAIT);
      if (count <= 0 && ++looks < MAX_LOOKS) return;
      say(AT_AN_END);
      // What MPI_Finalize may say after all is said to nobody.
      const pair = new Int32Array(2);
      socketpair(UNIX, STREAM, 0, new Uint8Array(pair.buffer));
      dup2(pair[0]!, socket);
      left();
    }, HEAR_MS);
  };
  let timer = setInterval(look, LOOK_MS);
  return () => clearInterval(timer);
}
