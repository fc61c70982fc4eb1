/**
 * Actors that do to their process what no actor should.
 *
 * @module
 */

// deno-lint-ignore-file determinism/no-ambient -- they play with real time

import type {
  ActorFactory,
  ActorRef,
  ActorSpec,
  Context,
  PlaceName,
} from "../../../actors/runtime/mod.ts";
import { RECORDER, type RecorderMessage, SERVER, type ServerMessage } from "./players.ts";

export type RogueMessage =
  | { readonly type: "Pid" }
  | { readonly type: "Loop" }
  | { readonly type: "Fill" }
  | { readonly type: "Exit"; readonly code: number }
  /** Sends a message of so many bytes. */
  | { readonly type: "Ship"; readonly to: ActorRef<RecorderMessage>; readonly bytes: number }
  /** Computes so long, in a step of its own. */
  | { readonly type: "Busy"; readonly ms: number }
  /** Sends a message of so many bytes again and again, for ever. */
  | { readonly type: "Pour"; readonly to: ActorRef<RecorderMessage>; readonly bytes: number }
  /** Sends so many notes, and stops. */
  | { readonly type: "Will"; readonly to: ActorRef<RecorderMessage>; readonly notes: number }
  /** Sends so many notes, now and then pausing. */
  | { readonly type: "Write"; readonly to: ActorRef<RecorderMessage>; readonly notes: number }
  | { readonly type: "Echo"; readonly value: unknown }
  /** Tells of its own buffers and of those that it gets. */
  | { readonly type: "Weigh"; readonly tensor: Float32Array }
  | { readonly type: "Spawn"; readonly isolate: PlaceName };

export const ROGUE: ActorSpec<undefined, RogueMessage> = {
  module: import.meta.url,
  export: "rogue",
};

function ship(ctx: Context<RogueMessage>, to: ActorRef<RecorderMessage>, bytes: number): void {
  const { buffer } = new Uint8Array(bytes);
  const message: RecorderMessage & { buffer: ArrayBuffer } = { type: "Note", what: bytes, buffer };
  ctx.send(to, message, { transfer: [buffer] });
}

export const rogue: ActorFactory<undefined, RogueMessage> = (ctx) => ({
  Pid: () => ctx.reply(Deno.pid),
  /** What is sent before a long computation must not wait for its end. */
  Loop() {
    ctx.reply("looping");
    for (;;);
  },
  Fill() {
    const hoard: unknown[] = [];
    for (;;) hoard.push({ n: hoard.length, more: [hoard.length] });
  },
  Exit: ({ code }) => Deno.exit(code),
  Ship: ({ to, bytes }) => ship(ctx, to, bytes),
  Busy({ ms }) {
    for (const until = performance.now() + ms; performance.now() < until;);
    ctx.reply(ctx.now());
  },
  async Pour({ to, bytes }) {
    ctx.reply("pouring");
    for (;;) {
      ship(ctx, to, bytes);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  },
  Will({ to, notes }) {
    for (let what = 0; what < notes; what++) ctx.send(to, { type: "Note", what });
    ctx.stop();
  },
  async Write({ to, notes }) {
    for (let what = 0; what < notes; what++) {
      ctx.send(to, { type: "Note", what });
      if (what % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 0));
    }
    ctx.reply("written");
  },
  Echo: ({ value }) => ctx.reply(value),
  Weigh({ tensor }) {
    const { byteOffset, buffer: { byteLength } } = tensor;
    ctx.reply({ byteOffset, byteLength, last: tensor.at(-1) });
  },
  Spawn({ isolate }) {
    ctx.reply([
      ctx.spawn<undefined, ServerMessage>(SERVER, undefined, { id: "inner", isolate }),
      ctx.spawn<undefined, RecorderMessage>(RECORDER, undefined, { id: "notes", isolate }),
    ]);
  },
});
