/** Prints the permissions of this program, and those of an actor in a process of its own. */

import { type ActorFactory, createSystem } from "../../../actors/runtime/mod.ts";

const KINDS = ["run", "read", "write", "net", "env", "sys", "ffi", "import"] as const;

const permissions = () =>
  KINDS.map((name) => {
    const { state, partial } = Deno.permissions.querySync({ name });
    return `${name} ${state}${partial ? " in part" : ""}`;
  });

export const teller: ActorFactory<undefined, { type: "Tell" }> = (ctx) => ({
  Tell() {
    ctx.reply(permissions());
  },
});

if (import.meta.main) {
  await using system = createSystem();
  const spec = { module: import.meta.url, export: "teller" };
  const ref = system.spawn<undefined, { type: "Tell" }>(spec, undefined, {
    id: "teller",
    isolate: "process",
  });
  const child = await system.ask(ref, { type: "Tell" });
  Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify([permissions(), child])));
}
