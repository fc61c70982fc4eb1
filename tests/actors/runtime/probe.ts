/** An actor that reports its permissions. */

import type { ActorSpec, Ask, Context, Handlers } from "../../../actors/runtime/mod.ts";

export type ProbeMessage = { type: "States" } & Ask<Record<string, string>>;

const KINDS = ["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const;

/** Returns the permissions of this isolate, by kind. */
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
