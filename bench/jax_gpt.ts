/**
 * The measured GPT in jax-js, as a separate program that imports nothing of Troupe.
 *
 *     deno run --allow-read --no-lock --no-config jax_gpt.ts <specifier> <wasm|webgpu> <pool> <folder>
 *
 * It takes one step for each line on standard input, and answers with `{"ms":…,"loss":…}`.
 *
 * The folder is that of `program.ts`.
 *
 * [Note: how jax-js is used] Its WebAssembly backend by the synchronous interface, which keeps all
 * work in the calling thread and is faster than a pool of one worker; with a pool, and on its WebGPU
 * backend, by the asynchronous one. It makes a worker for each core that `navigator`
 * reports, and has no other option, so that number is changed before it loads. Version 0.1.25 cannot compile the gradient of a `take` that a reshape follows, so the embedding and its
 * gradient run outside `jit`; the rest is one compiled function. Operations consume their arguments:
 * `.ref` keeps one for another use.
 *
 * @module
 */

import process from "node:process";
import { createInterface } from "node:readline";

const [specifier, backend, pool, folder] = Deno.args as [string, "wasm" | "webgpu", string, string];
const isSynchronous = backend === "wasm" && Number(pool) === 0;
if (backend === "wasm" && !isSynchronous) {
  Object.defineProperty(navigator, "hardwareConcurrency", { value: Number(pool) });
}
// Not a literal: Deno would fetch it for everyone, and write it into the lock file.
const { blockUntilReady, defaultDevice, init, jit, nn, numpy: np, tree, valueAndGrad, vjp } =
  await import(specifier);
if (backend === "webgpu") writeOutPointers();
if (!(await init(backend)).includes(backend)) {
  throw new Error(`Deno must have an adapter for ${backend}, received none`);
}
defaultDevice(backend);

/**
 * Inlines the function by which jax-js sums the gradient of an embedding: Deno's WebGPU does not
 * support arguments that are pointers into a buffer.
 */
function writeOutPointers(): void {
  const create = GPUDevice.prototype.createShaderModule;
  GPUDevice.prototype.createShaderModule = function (descriptor) {
    const code = descriptor.code.replace(/fn atomic_add_f32\([\s\S]*?\n\}\n/, "")
      .replace(
        /atomic_add_f32\(&(.+), (.+)\);/g,
        `{
          var old = atomicLoad(&$1);
          loop {
            let sum = bitcast<u32>(bitcast<f32>(old) + $2);
            let result = atomicCompareExchangeWeak(&$1, old, sum);
            if (result.exchanged) { break; }
            old = result.old_value;
          }
        }`,
      );
    return create.call(this, { ...descriptor, code });
  };
}

/** An array of jax-js; the package, and so its types, may not be installed. */
// deno-lint-ignore no-explicit-any -- see above
type Tensor = any;
type Weights = Record<string, Tensor>;

const { config, microBatch, parameters, batches: [{ ids, targets }] } = JSON.parse(
  await Deno.readTextFile(`${folder}/model.json`),
);
const { layers, hidden, heads, seq, vocab } = config, rows = microBatch * seq;

function linear(w: Weights, name: string, x: Tensor): Tensor {
  return np.matmul(x, w[`${name}.weight`]).add(w[`${name}.bias`]);
}

function layerNorm(w: Weights, name: string, x: Tensor): Tensor {
  return nn.standardize(x).mul(w[`${name}.weight`]).add(w[`${name}.bias`]);
}

function block(w: Weights, name: string, x: Tensor): Tensor {
  const [q, k, v] = np.split(
    linear(w, `${name}.attn.c_attn`, layerNorm(w, `${name}.ln_1`, x.ref)),
    3,
    1,
  ).map((part: Tensor) => part.reshape([microBatch, seq, heads, hidden / heads]));
  const mixed = nn.dotProductAttention(q, k, v, { isCausal: true }).reshape([rows, hidden]);
  const attended = x.add(linear(w, `${name}.attn.c_proj`, mixed));
  const normal = layerNorm(w, `${name}.ln_2`, attended.ref);
  return attended.add(
    linear(w, `${name}.mlp.c_proj`, nn.gelu(linear(w, `${name}.mlp.c_fc`, normal))),
  );
}

/** From the residual stream to the mean loss; `wanted` is one-hot. */
function loss(w: Weights, first: Tensor, wanted: Tensor): Tensor {
  let x = first;
  for (let i = 0; i < layers; i++) x = block(w, `transformer.h.${i}`, x);
  const logits = np.matmul(layerNorm(w, "transformer.ln_f", x), w["lm_head.weight"].transpose());
  return nn.logSoftmax(logits).mul(wanted).sum().mul(-1 / rows);
}

function embed(tokens: Tensor, positions: Tensor): Tensor {
  const taken = np.take(tokens, np.array(Int32Array.from(ids), { dtype: np.int32 }), 0);
  return taken.reshape([microBatch, seq, hidden]).add(positions).reshape([rows, hidden]);
}

const bytes = await Deno.readFile(`${folder}/weights.f32`);
const weights: Weights = {};
let offset = 0;
for (const { name, shape, size } of parameters) {
  weights[name] = np.array(new Float32Array(bytes.buffer, offset, size)).reshape(shape);
  offset += 4 * size;
}
const { "transformer.wte.weight": tokens, "transformer.wpe.weight": positions, ...rest } = weights;
const wanted = nn.oneHot(np.array(Int32Array.from(targets), { dtype: np.int32 }), vocab);
const lossAndGradients = jit(valueAndGrad(loss, { argnums: [0, 1] }));

/** Loss, and the gradients of all weights, computed to the end. */
async function step(): Promise<number> {
  const [x, embedBackward] = vjp(embed, [tokens.ref, positions.ref]);
  const [value, [gradients, dx]] = lossAndGradients(tree.ref(rest), x, wanted.ref);
  const embedded = embedBackward(dx);
  embedBackward.dispose();
  tree.dispose(gradients);
  // Operations wait until something is read; one output of a compiled function computes all of it.
  if (isSynchronous) {
    for (const gradient of embedded) gradient.dataSync();
    return value.dataSync()[0];
  }
  tree.dispose(await blockUntilReady(embedded)); // reading them would be a transfer
  return (await value.data())[0]; // the last in the queue
}

for await (const _ of createInterface({ input: process.stdin })) {
  const start = performance.now();
  const value = await step();
  const ms = performance.now() - start;
  process.stdout.write(JSON.stringify({ ms, loss: value }) + "\n");
}
