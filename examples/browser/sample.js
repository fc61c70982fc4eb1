// Samples text from a GPT-2 in ONNX, token by token: each is drawn from the logits that plain
// onnxruntime-web computes of the tokens before it.

import * as ort from "onnxruntime-web";
import { TOKENIZERS } from "./tokenizers.js";

const $ = (selector) => document.querySelector(selector);
const form = $("form"), button = $("button"), output = $("#text");

/** Returns the metadata of the file: `metadata_props`, field 14 of ONNX's ModelProto. */
function metadataOf(bytes) {
  const found = {}, decoder = new TextDecoder();
  const eachField = (from, to, take) => {
    for (let at = from; at < to;) {
      const varint = () => {
        let value = 0;
        for (let factor = 1;; factor *= 128) {
          const byte = bytes[at++] ?? 0;
          value += (byte & 127) * factor;
          if (byte < 128) return value;
        }
      };
      const tag = varint(), size = varint();
      if ((tag & 7) !== 2) continue; // a number
      take(tag >> 3, at, at + size);
      at += size;
    }
  };
  eachField(0, bytes.length, (field, from, to) => {
    const entry = [];
    if (field !== 14) return;
    eachField(from, to, (i, from, to) => entry[i] = decoder.decode(bytes.subarray(from, to)));
    found[entry[1]] = entry[2];
  });
  return found;
}

/** Uniform numbers from 0 to below 1: mulberry32. */
function randomFrom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let bits = Math.imul(seed ^ (seed >>> 15), seed | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** An id with probability softmax(logits ÷ temperature), among the likeliest: `topK`, then `topP`. */
function draw(logits, { temperature, topK, topP }, uniform) {
  const ids = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b).slice(0, topK);
  if (temperature === 0) return ids[0];
  const weights = ids.map((id) => Math.exp((logits[id] - logits[ids[0]]) / temperature));
  const sumOf = (some) => some.reduce((sum, weight) => sum + weight, 0);
  let missing = topP * sumOf(weights);
  const enough = weights.findIndex((weight) => (missing -= weight) <= 0);
  const kept = weights.slice(0, enough < 0 ? weights.length : enough + 1);
  let rest = uniform * sumOf(kept);
  return ids[kept.findIndex((weight) => (rest -= weight) < 0)] ?? ids[0];
}

async function sample(session, tokenizer, { seq, vocab }) {
  const given = Object.fromEntries(new FormData(form));
  const options = {
    temperature: Number(given.temperature),
    topK: Number(given.topK || vocab),
    topP: Number(given.topP || 1),
  };
  const context = tokenizer.encode(given.prompt), random = randomFrom(Number(given.seed));
  output.textContent = tokenizer.decode(context);
  const start = performance.now();
  for (let i = 1; i <= Number(given.tokens) && isRunning; i++) {
    const ids = BigInt64Array.from(context.slice(-seq), BigInt);
    const { logits } = await session.run({ input_ids: new ort.Tensor(ids, [1, ids.length]) });
    const id = draw(logits.data.subarray(-vocab), options, random());
    context.push(id);
    output.textContent = tokenizer.decode(context);
    $("#speed").textContent = `${i} tokens, ${
      (1000 * i / (performance.now() - start)).toFixed(1)
    } a second`;
    await new Promise((resolve) => setTimeout(resolve)); // so that the page shows it
  }
}

let isRunning = false;
try {
  const bytes = new Uint8Array(await (await fetch("model.onnx")).arrayBuffer());
  const about = metadataOf(bytes), { model, layers, hidden, tokenizer: name = "none" } = about;
  if (model !== "gpt2") {
    throw new TypeError(`it must be a gpt2, received ${model ?? "none of Troupe's"}`);
  }
  const session = await ort.InferenceSession.create(bytes);
  const tokenizer = await TOKENIZERS[Object.hasOwn(TOKENIZERS, name) ? name : "none"]();
  $("#about").textContent =
    `GPT-2: layers ${layers}, hidden ${hidden}, context ${about.seq}, tokens ${name}`;
  if (!Object.hasOwn(TOKENIZERS, name) || name === "none") form.elements.prompt.value = "0"; // an id
  button.disabled = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    isRunning = !isRunning; // pressed again, it stops
    button.disabled = !isRunning;
    if (!isRunning) return;
    button.textContent = "Stop";
    await sample(session, tokenizer, { seq: Number(about.seq), vocab: Number(about.vocab) })
      .catch((error) => $("#speed").textContent = `Cannot sample: ${error.message}`);
    [isRunning, button.disabled, button.textContent] = [false, false, "Sample"];
  });
} catch (error) {
  $("#about").textContent = `Cannot load the model: ${error.message}`;
}
