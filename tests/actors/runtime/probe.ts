/** An actor that tells what it may do. */

import type { ActorSpec, Ask, Context, Handlers } from "../../../actors/runtime/mod.ts";

export type ProbeMessage = { type: "States" } & Ask<Record<string, string>>;

const KINDS = ["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const;

/** What this isolate may do, by kind. */
export const states = () =>
  Object.fromEntries(
    KINDS.map((name) => [name, Deno.permissions.querySync({ name }).state as string]),
  );

export const probe = (ctx: Context<ProbeMessage>): Handlers<ProbeMessage> => ({
  States: () => ctx.reply(states()),
});

export const PROBE: ActorSpec<undefined, ProbeMessage> = {
  module: import.meta.url,
  export: "probe",
};
