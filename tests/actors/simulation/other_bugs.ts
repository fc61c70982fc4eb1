/**
 * Planted bugs that the toy of training has no place for: a reply of a dead actor, and sends that
 * block.
 *
 * @module
 */

import type { ActorFactory, ActorRef, ActorSpec, Message } from "../../../actors/runtime/mod.ts";
import type { World } from "../../../testing.ts";

function specOf<I, M extends Message>(name: string): ActorSpec<I, M> {
  return { module: import.meta.url, export: name };
}

/** Gives jobs to a hand, makes another hand when that dies, and counts what is done. */
export type BossMessage =
  | { readonly type: "Go" }
  | { readonly type: "Done"; readonly job: number; readonly hand: number }
  | { readonly type: "Down" };

export interface BossInit {
  readonly jobs: number;
  /** Whether it looks from which hand a result comes. */
  readonly checksWho: boolean;
}

export const BOSS = specOf<BossInit, BossMessage>("boss");

export const boss: ActorFactory<BossInit, BossMessage> = (ctx, { jobs, checksWho }) => {
  let job = 0, hands = 0, sum = 0, hand: ActorRef<HandMessage>;
  ctx.expose(() => sum);
  const give = () => {
    if (job < jobs) {
      ctx.send(hand, {
        type: "Do",
        job: job + 1,
        hand: hands,
        to: ctx.self as ActorRef<BossMessage>,
      });
    }
  };
  const hire = () => {
    hands++;
    hand = ctx.spawn(HAND, undefined, { id: "hand" });
    ctx.watch(hand, () => ({ type: "Down" }));
    give();
  };
  return {
    Go: hire,
    Done(message) {
      if (checksWho && message.hand !== hands) return;
      sum += message.job;
      job++;
      give();
    },
    Down: hire,
  };
};

export interface HandMessage extends Message {
  readonly type: "Do";
  readonly job: number;
  readonly hand: number;
  readonly to: ActorRef<BossMessage>;
}

const HAND = specOf<undefined, HandMessage>("hand");

export const hand: ActorFactory<undefined, HandMessage> = (ctx) => ({
  Do: ({ job, hand, to }) => ctx.send(to, { type: "Done", job, hand }),
});

/** A mailbox of bounded capacity: who puts waits for room, who takes waits for a message. */
export type BoxMessage =
  | { readonly type: "Put"; readonly what: "F" | "B" }
  | { readonly type: "Take" };

const BOX = specOf<{ readonly capacity: number }, BoxMessage>("box");

export const box: ActorFactory<{ readonly capacity: number }, BoxMessage> = (ctx, { capacity }) => {
  const inside: ("F" | "B")[] = [];
  const putters: { what: "F" | "B"; reply: () => void }[] = [];
  let taker: ((what: "F" | "B") => void) | undefined;
  ctx.expose(() => [inside, putters.map(({ what }) => what), taker !== undefined]);
  const go = () => {
    while (inside.length < capacity && putters.length > 0) {
      const { what, reply } = putters.shift()!;
      inside.push(what);
      reply();
    }
    if (!taker || inside.length === 0) return;
    taker(inside.shift()!);
    taker = undefined;
    go();
  };
  return {
    Put({ what }) {
      const reply = ctx.deferReply();
      putters.push({ what, reply: () => reply(undefined) });
      go();
    },
    Take() {
      taker = ctx.deferReply();
      go();
    },
  };
};

/** AxoNN's Algorithm 2 with sends that block: takes, computes, puts, and takes again. */
export type BlockingMessage = { readonly type: "Run" };

export interface BlockingInit {
  readonly stage: number;
  readonly stages: number;
  readonly microBatches: number;
  readonly limit: number;
  readonly boxes: readonly ActorRef<BoxMessage>[];
}

const BLOCKING = specOf<BlockingInit, BlockingMessage>("blocking");

export const blocking: ActorFactory<BlockingInit, BlockingMessage> = (ctx, init) => {
  const { stage, stages, microBatches, limit, boxes } = init;
  let sent = 0, received = 0;
  ctx.expose(() => [sent, received]);
  const put = (to: number, what: "F" | "B") => {
    sent++;
    return ctx.ask(boxes[to]!, { type: "Put", what }, { timeoutMs: Infinity });
  };
  const take = () =>
    ctx.ask<BoxMessage, "F" | "B">(boxes[stage]!, { type: "Take" }, { timeoutMs: Infinity });
  return {
    async Run() {
      if (stage === 0) { for (let n = 0; n < limit; n++) await put(1, "F"); }
      const messages = stage === 0 || stage === stages - 1 ? microBatches : 2 * microBatches;
      for (let n = 0; n < messages; n++) {
        const what = await take();
        received++;
        if (stage === 0) {
          if (sent < microBatches) await put(1, "F");
        } else if (stage === stages - 1 || what === "B") await put(stage - 1, "B");
        else await put(stage + 1, "F");
      }
    },
  };
};

/** Four stages, eight micro-batches, limit 4: the paper's own setting. */
export async function playBlocking(
  { system, settle, idle }: World,
  capacity: number,
): Promise<void> {
  const stages = 4, pipeline = { stages, microBatches: 8, limit: 4 };
  const boxes = Array.from(
    { length: stages },
    (_, stage) => system.spawn(BOX, { capacity }, { id: `box-${stage}` }),
  );
  const workers = boxes.map((_, stage) =>
    system.spawn(BLOCKING, { ...pipeline, stage, boxes }, { id: `stage-${stage}` })
  );
  await settle();
  for (const worker of workers) system.send(worker, { type: "Run" });
  await idle();
}
