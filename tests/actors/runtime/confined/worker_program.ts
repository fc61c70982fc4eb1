/**
 * A program that wants the actor of a package in a worker: says where it lives, and what it may do.
 *
 * @module
 */

import { type Ask, createSystem, type Down, type PackageSpec } from "../../../../actors/mod.ts";

type Sayer = { type: "Say"; what: string } & Ask<string>;

const spec: PackageSpec<undefined, Sayer> = { from: Deno.args[0]! };
await using system = createSystem();
const events: string[] = [];
using _ = system.subscribe((event) =>
  events.push(event.type === "moved" ? `${event.actor} to ${event.to}: ${event.why}` : event.type)
);
const sayer = system.spawn(spec, undefined, { id: "sayer", isolate: "worker", stepLimitMs: 1000 });
const down = new Promise<Down>((resolve) => system.watch(sayer, resolve));
const say = (what: string) => system.ask(sayer, { type: "Say", what });
const isWorker = await say("pid") === String(Deno.pid);
const read = await say("read"), npm = await say("npm");
system.send(sayer, { type: "Say", what: "wait" });
const { reason } = await down;
const ended = reason === "stopped" ? reason : reason.error.message;
const told = JSON.stringify({ isWorker, read, npm, ended, events });
await Deno.stdout.write(new TextEncoder().encode(told));
