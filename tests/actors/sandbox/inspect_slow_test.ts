/** Packages are inspected and hashed before they run. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Ask } from "../../../actors/runtime/mod.ts";
import { createSystem } from "../../../actors/transports/system.ts";
import { hashModule } from "../../../actors/sandbox/modules.ts";
import { inspectActor, type InspectOptions, packageActor } from "../../../actors/sandbox/host.ts";
import { folderTest, inFolder } from "../../in_folder.ts";
import { actor } from "./fixtures/counter.ts";
import REFUSED from "./refused.json" with { type: "json" };

const FROM = import.meta.resolve("./fixtures/counter.ts");

type Counter = { type: "Add"; by: number } | { type: "Read" } & Ask<number>;

/** Inspects a module with this text. */
const inspect = (text: string, options?: InspectOptions) =>
  inFolder(async (folder) => {
    const path = join(folder, "actor.ts");
    await Deno.writeTextFile(path, text);
    return await inspectActor(pathToFileURL(path).href, options);
  });

Deno.test("an inspection gives the definition of an actor with its hash, and does not make it", async () => {
  const { hashed, ...definition } = await inspectActor(FROM);
  const { create: _, ...described } = actor;
  assert.deepEqual(definition, { ...described, permissions: {} });
  assert.equal(hashed.integrity, (await hashModule(FROM)).integrity);
  const other = await inspect(
    `export const echo = { name: "e", protocol: 2, messages: {},
      permissions: { net: ["example.org"] }, create() { throw new Error("never called"); } };`,
    { export: "echo" },
  );
  assert.deepEqual([other.protocol, other.permissions], [2, { net: ["example.org"] }]);
});

Deno.test("a package that cannot be inspected is refused in one sentence", async () => {
  for (const [text, sentence] of Object.entries(REFUSED)) {
    const message = new RegExp(`^Cannot (inspect|use|fetch|hash) [^\\n]*${sentence}$`);
    await assert.rejects(inspect(text, { timeLimitMs: 2000 }), { message });
  }
});

folderTest("a package whose modules have another hash never runs", async (folder) => {
  const path = `${folder}/actor.ts`, from = pathToFileURL(path).href;
  const text = await Deno.readTextFile(new URL(FROM)), edited = `console.log("runs");\n${text}`;
  for (const permissions of ["inherit", {}] as const) {
    await Deno.writeTextFile(path, text);
    const { integrity } = await hashModule(from);
    const spec = packageActor<number, Counter>({ from, integrity, permissions });
    await using system = createSystem();
    const counter = system.spawn(spec, 40, { id: "counter" });
    system.send(counter, { type: "Add", by: 2 });
    assert.equal(await system.ask(counter, { type: "Read" }), 42);
    await system.stop(counter);
    await Deno.writeTextFile(path, edited);
    const { integrity: received } = await hashModule(from);
    system.failed.catch(() => {}); // it is part of the answer
    const changed = system.spawn(spec, 1, { id: "edited" });
    const sentence = `Cannot use ${from}: its hash must be ${integrity}, received ${received}`;
    await assert.rejects(
      system.ask(changed, { type: "Read" }),
      ({ message }: Error) => message.startsWith('Actor "edited"') && message.endsWith(sentence),
    );
  }
});
