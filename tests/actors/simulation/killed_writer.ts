/** Writes a journal until it is killed, and says when 2,000 steps are flushed. */

import { simulate, writeJournal } from "../../../testing.ts";
import { playRing } from "./players.ts";

const { onStep, close } = await writeJournal({ path: Deno.args[0]!, flushMs: 0 });
await simulate({
  onStep(step) {
    onStep(step);
    if (step.n === 2000) Deno.stdout.writeSync(new TextEncoder().encode("going\n"));
  },
}, (world) => playRing(world, { nodes: 8, tokens: 8, hops: 1_000_000 }));
close();
