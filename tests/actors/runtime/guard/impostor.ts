/**
 * A package whose isolate sends the frames that a test makes up.
 *
 * @module
 */

import {
  type ActorRef,
  type Context,
  createSystem,
  type DeniedEvent,
  type Handlers,
  type Message,
  OTHERS,
  type System,
  type Transport,
} from "../../../../actors/runtime/mod.ts";
import type { BootFrame, DownFrame, Frame } from "../../../../actors/runtime/transports/wire.ts";

/** The messages that each listener has got, by its id. Listeners live in the isolate of the test. */
export const HEARD: Record<string, unknown[]> = {};

/** Notes every message, and answers "Echo". */
export function listener(ctx: Context<Message>): Handlers<Message> {
  const heard = HEARD[ctx.self.id] = [] as unknown[];
  return {
    [OTHERS](message: Message) {
      heard.push(message);
      if (message.type === "Echo") ctx.reply(message);
    },
  };
}

/** An actor of the program, beside which a package lives. */
export const LISTENER = { module: import.meta.url, export: "listener" } as const;

/** An isolate in which no code runs. */
export interface Impostor {
  readonly boot: BootFrame;
  /** The frames that it was sent. */
  readonly got: (Frame | DownFrame)[];
  readonly isEnded: boolean;
  /** Sends a frame to the root. */
  say(frame: unknown): void;
}

/** Isolates that do nothing by themselves. */
function impostors(started: Impostor[]): Transport {
  return {
    name: "impostor",
    sharesMemory: false,
    canKill: true,
    limitsMemory: false,
    confines: true,
    open: () => ({
      start({ boot, receive }) {
        const gone = Promise.withResolvers<string>(), got: (Frame | DownFrame)[] = [];
        let isEnded = false;
        const end = () => {
          isEnded = true;
          gone.resolve("it was ended");
        };
        started.push({
          boot: structuredClone(boot) as BootFrame,
          got,
          get isEnded() {
            return isEnded;
          },
          // What arrives has been through a pipe.
          say: (frame) => receive(structuredClone(frame)),
        });
        return {
          send(sent, transfer) {
            const frame = structuredClone(sent as Frame, { transfer: [...transfer] });
            if (frame.kind !== "stop") return void got.push(frame);
            // It stops when it is asked to.
            const { ref: child, parent } = (boot as BootFrame).launch, reason = "stopped";
            receive({ kind: "ended", parent, child, reason });
            receive({ kind: "done", reason });
          },
          close: end,
          kill: end,
          gone: gone.promise,
          ended: gone.promise.then(() => {}),
        };
      },
    }),
  };
}

/** The impostor of a test, and what is around it. */
export interface Scene {
  readonly system: System;
  /** Said and heard as the isolate of `self`. */
  readonly impostor: Impostor;
  readonly self: ActorRef<Message>;
  /** Its address was given to the impostor. */
  readonly friend: ActorRef<Message>;
  /** Not given. */
  readonly victim: ActorRef<Message>;
  /** Another isolate, not given. */
  readonly stranger: ActorRef<Message>;
  readonly strange: Impostor;
  readonly denied: DeniedEvent[];
  /** The reason of the impostor's end. */
  readonly ends: string[];
  /** Aborted after the test. */
  readonly signal: AbortSignal;
  /** Another one, when it has ended. */
  again(): Scene;
}

/** Sets a scene, and checks afterwards that only the friend has heard anything. */
export async function withImpostor(
  test: (scene: Scene) => Promise<void> | void,
): Promise<void> {
  const started: Impostor[] = [], denied: DeniedEvent[] = [];
  await using system = createSystem({ transport: impostors(started), stopGraceMs: 10 });
  system.subscribe((event) => event.type === "denied" && denied.push(event));
  const [friend, victim] = ["friend", "victim"].map((id) =>
    system.spawn(LISTENER, undefined, { id }) as ActorRef<Message>
  ) as [ActorRef<Message>, ActorRef<Message>];
  let count = 0;
  const over = new AbortController(), { signal } = over;
  const spawn = (init: unknown): ActorRef<Message> => {
    const options = { id: `package ${count++}`, isolate: "impostor" };
    return system.spawn<unknown, Message>({ from: "data:text/javascript," }, init, options);
  };
  const stranger = spawn(undefined), strange = started[0]!;
  system.watch(stranger, () => {});
  const begin = (): Scene => {
    const self = spawn({ friend }), ends: string[] = [];
    system.watch(self, ({ reason }) => {
      ends.push(reason === "stopped" ? reason : reason.error.message);
    });
    const impostor = started.at(-1)!;
    const others = { friend, victim, stranger, strange };
    return { system, impostor, self, ...others, denied, ends, signal, again: begin };
  };
  await settled();
  await test(begin());
  await settled();
  over.abort();
  await settled();
  if (HEARD.victim!.length > 0) throw new Error(`the victim heard ${Deno.inspect(HEARD.victim)}`);
  const heard = strange.got.filter(({ kind }) => kind !== "watch" && kind !== "subscribe");
  if (heard.length > 0) throw new Error(`a stranger got ${Deno.inspect(heard)}`);
}

/** Lets all be handled that is on its way. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setTimeout(resolve, 0));
}
