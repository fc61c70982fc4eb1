/**
 * A GPT that learns to write like a text, cut into two stages on two workers:
 *
 *     deno run -A examples/train_gpt.ts [STEPS] [DEVICE]
 */
// deno-lint-ignore-file no-console -- the output of the script

import { bytesTokenizer, generateText, gpt2, loadText, openDevice } from "@troupe/troupe";
import { heldOutBatches, rowCount, shuffledOrder, splitTokens, tokenBatches } from "@troupe/troupe";
import { train } from "@troupe/troupe";

const [steps = "600", device = "auto"] = Deno.args;
const config = { layers: 4, hidden: 128, heads: 4, seq: 64, vocab: 256, tie: false };
const samples = 8, microBatches = 4; // of a micro-batch; of a step

// The data: the bytes of a text. For your own text: await Deno.readTextFile("my.txt").
const tokenizer = bytesTokenizer();
const { seq, vocab } = config;
const text = splitTokens(tokenizer.encode(await loadText("sotu")), seq);
const rows = { seq, vocabularySize: vocab, microBatch: samples, microBatches };
const order = shuffledOrder(rowCount(text.train.length, seq), 1);

const run = train({
  model: gpt2(config, samples),
  data: tokenBatches({ ...rows, tokens: text.train, order }),
  evaluation: { every: 100, batches: heldOutBatches({ ...rows, tokens: text.heldOut }) },
  steps: Number(steps),
  microBatches,
  workers: 2,
  schedule: "1f1b", // or "message-driven", "zb-h1", "hanayo" ...
  learningRate: { rate: 0.002, schedule: "cosine", warmup: 20 },
  device: device as "auto",
});

for await (const event of run) {
  if (event.type === "step" && event.step % 20 === 0) {
    console.log(event.step, event.loss.toFixed(3));
  }
  if (event.type === "evaluation") {
    console.log(`held out, after ${event.step}: ${event.loss.toFixed(3)}`);
  }
  if (event.type !== "end") continue;
  const writer = await openDevice(event.choice.name, event.choice);
  const prompt = { config, weights: event.weights, prompt: "The ", tokens: 200 };
  console.log(await generateText(writer, tokenizer, prompt));
  writer.close();
}
