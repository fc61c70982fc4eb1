/** Actors of the program, beside which a package lives. */

import { type Handlers, type Message, OTHERS } from "../../../../actors/runtime/mod.ts";
import type { Context } from "../../../../actors/runtime/mod.ts";

/** What each has heard, by id. In the isolate of the test. */
export const HEARD: Record<string, unknown[]> = {};

/** Notes all that it is sent, and answers to "Echo". */
export function listener(ctx: Context<Message>): Handlers<Message> {
  const heard = HEARD[ctx.self.id] = [] as unknown[];
  return {
    [OTHERS](message: Message) {
      heard.push(message);
      if (message.type === "Echo") ctx.reply(message);
    },
  };
}

export const LISTENER = { module: import.meta.url, export: "listener" } as const;
