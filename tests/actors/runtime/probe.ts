/** An actor that tells what it may do, and tries. */

import type { ActorSpec, Ask, Context, Handlers } from "../../../actors/runtime/mod.ts";

export type ProbeMessage =
  | { type: "Try"; what: string } & Ask<string>
  | { type: "States" } & Ask<Record<string, string>>;

const KINDS = ["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const;

const TRIES: Readonly<Record<string, () => unknown>> = {
  read: () => Deno.readTextFileSync("/etc/hostname"),
  write: () => Deno.writeTextFileSync("/tmp/troupe-probe", ""),
  connect: () => Deno.connect({ hostname: "127.0.0.1", port: 9 }),
  listen: () => Deno.listen({ hostname: "127.0.0.1", port: 0 }).close(),
  run: () => new Deno.Command("true").outputSync(),
  env: () => Deno.env.get("HOME"),
  ffi: () => Deno.dlopen("libc.so.6", {}),
  sys: () => Deno.hostname(),
};

/** What this isolate may do, by kind. */
export const states = () =>
  Object.fromEntries(
    KINDS.map((name) => [name, Deno.permissions.querySync({ name }).state as string]),
  );

export function probe(ctx: Context<ProbeMessage>): Handlers<ProbeMessage> {
  return {
    States: () => ctx.reply(states()),
    async Try({ what }) {
      try {
        await TRIES[what]!();
        ctx.reply("did it");
      } catch (error) {
        ctx.reply((error as Error).name);
      }
    },
  };
}

export const PROBE: ActorSpec<undefined, ProbeMessage> = {
  module: import.meta.url,
  export: "probe",
};
