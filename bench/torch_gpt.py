"""The measured GPT in PyTorch, as a program of its own.

    OMP_NUM_THREADS=<threads> python3 torch_gpt.py <threads> <fp32|bf16> <folder of peers.ts>

It answers a line "about" on standard input with its version and ways, a line "step" by the next
optimizer step - gradients zeroed, forward and backward of every micro-batch, AdamW - and
{"ms":...,"loss":...}, and a line "evaluate" by the {"loss":...} of the held-out micro-batches. With
bf16, the forward runs in torch.autocast.

What PyTorch offers several ways of is tried on this machine before, and the fastest taken: how
scores are scaled and masked, which way linear weights lie, how AdamW loops over parameters, and
whether gradients are freed or filled with zeros.
"""

import itertools
import json
import math
import sys
import time

import torch
import torch.nn.functional as F

# Passes of each way that is tried, of which the fastest counts: two, and more while there is time.
TRIES_MIN, TRIES_MAX, TRIES_SECONDS = 2, 4, 15


def masked(q, k, v, masks):
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(masks.later, -math.inf)
    return scores.softmax(3) @ v


def added(q, k, v, masks):
    """Scale and mask within the product."""
    flat = lambda part: part.reshape(-1, *part.shape[2:])
    scale = 1 / math.sqrt(q.shape[3])
    scores = torch.baddbmm(masks.addend, flat(q), flat(k).transpose(1, 2), alpha=scale)
    return torch.bmm(scores.softmax(2), flat(v)).view(q.shape)


def fused(q, k, v, _masks):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTIONS = {"masked_fill": masked, "baddbmm": added}
if hasattr(F, "scaled_dot_product_attention"):
    ATTENTIONS["scaled_dot_product_attention"] = fused


class Masks:
    def __init__(self, seq):
        self.later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        self.addend = torch.zeros(seq, seq).masked_fill(self.later, -math.inf)


class Gpt:
    """The model, with its linear weights as [in, out], or as [out, in] as torch.nn.Linear has them."""

    def __init__(self, model, values, layout, attention):
        self.is_bf16 = model["precision"] == "bf16"
        self.config, self.batch = model["config"], model["microBatch"]
        self.attend, self.layout = ATTENTIONS[attention], layout
        self.masks = Masks(self.config["seq"])
        self.weights = {}
        for name, value in values.items():
            turns = layout == "[out, in]" and value.dim() == 2 and ".h." in name
            self.weights[name] = (value.t() if turns else value).clone(
                memory_format=torch.contiguous_format
            ).requires_grad_()

    def parameters(self, name):
        """A weight, and a bias or None."""
        return self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")

    def linear(self, name, x):
        weight, bias = self.parameters(name)
        if self.layout == "[out, in]":
            return F.linear(x, weight, bias)
        return x @ weight if bias is None else torch.addmm(bias, x, weight)

    def norm(self, name, x):
        weight, bias = self.parameters(name)
        return F.layer_norm(x, (self.config["hidden"],), weight, bias)

    def block(self, name, x):
        hidden, heads, seq = (self.config[key] for key in ("hidden", "heads", "seq"))
        width = hidden // heads
        qkv = self.linear(f"{name}.attn.c_attn", self.norm(f"{name}.ln_1", x)).split(hidden, 1)
        q, k, v = (part.view(self.batch, seq, heads, width).transpose(1, 2) for part in qkv)
        mixed = self.attend(q, k, v, self.masks).transpose(1, 2).reshape(self.batch * seq, hidden)
        x = x + self.linear(f"{name}.attn.c_proj", mixed)
        wide = self.linear(f"{name}.mlp.c_fc", self.norm(f"{name}.ln_2", x))
        return x + self.linear(f"{name}.mlp.c_proj", F.gelu(wide, approximate="tanh"))

    def loss(self, ids, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            return self.forward(ids, targets)

    def forward(self, ids, targets):
        seq, hidden = self.config["seq"], self.config["hidden"]
        table = self.weights["transformer.wte.weight"]
        tokens = F.embedding(ids, table)
        positions = self.weights["transformer.wpe.weight"]
        x = (tokens.view(self.batch, seq, hidden) + positions).view(-1, hidden)
        for i in range(self.config["layers"]):
            x = self.block(f"transformer.h.{i}", x)
        head = self.weights.get("lm_head.weight", table)  # tied without its own
        logits = F.linear(self.norm("transformer.ln_f", x), head)
        return F.cross_entropy(logits, targets)


def adamw(gpt, settings, **how):
    """As Troupe's: one-dimensional tensors do not decay."""
    parameters = gpt.weights.values()
    decay = settings["weightDecay"]
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0},
        ],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        **how,
    )


def read(folder):
    with open(f"{folder}/model.json") as file:
        model = json.load(file)
    flat = torch.from_file(
        f"{folder}/weights.f32", size=sum(one["size"] for one in model["parameters"])
    )
    sizes = [one["size"] for one in model["parameters"]]
    values = {
        one["name"]: part.view(one["shape"])
        for one, part in zip(model["parameters"], flat.split(sizes))
    }
    batches, held_out = (
        [tuple(torch.tensor(batch[field]) for field in ("ids", "targets")) for batch in model[name]]
        for name in ("batches", "heldOut")
    )
    return model, values, batches, held_out


def fastest(ways, prepare):
    """The name of the way whose fastest run is the fastest; they are run in turns."""
    runs = {name: prepare(way) for name, way in ways.items()}
    best = {name: math.inf for name in runs}
    begun = time.perf_counter()
    for tried in range(TRIES_MAX):
        if tried >= TRIES_MIN and time.perf_counter() - begun > TRIES_SECONDS:
            break
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=best.get)


def optimizers():
    ways = {"foreach": {"foreach": True}, "a loop": {"foreach": False}}
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4):
        ways["fused"] = {"fused": True}  # on a CPU since 2.4
    return ways


def choose(model, values, batches):
    """The fastest way of each kind."""
    ids, targets = batches[0]

    def pass_of(layout, attention):
        gpt = Gpt(model, values, layout, attention)

        def run():
            for weight in gpt.weights.values():
                weight.grad = None
            gpt.loss(ids, targets).backward()

        return run

    layouts = {name: name for name in ("[in, out]", "[out, in]")}
    layout = fastest(layouts, lambda name: pass_of(name, "masked_fill"))
    attentions = {name: name for name in ATTENTIONS}
    attention = fastest(attentions, lambda name: pass_of(layout, name))

    def step_of(how):
        gpt = Gpt(model, values, layout, attention)
        for weight in gpt.weights.values():
            weight.grad = torch.zeros_like(weight)
        return adamw(gpt, model["optimizer"], **how).step

    ways = optimizers()
    optimizer = fastest(ways, step_of)

    def zeroing_of(to_none):
        gpt = Gpt(model, values, layout, attention)

        def run():
            for weight in gpt.weights.values():
                if to_none:
                    weight.grad = None
                elif weight.grad is not None:
                    weight.grad.zero_()
            for _ in range(2):
                gpt.loss(ids, targets).backward()

        return run

    zeroing = fastest({"freed": True, "zeroed": False}, zeroing_of)
    return layout, attention, optimizer, zeroing


def main():
    threads, precision, folder = int(sys.argv[1]), *sys.argv[2:]
    torch.set_num_threads(threads)
    model, values, batches, held_out = read(folder)
    model["precision"] = precision
    layout, attention, optimizer, zeroing = choose(model, values, batches)
    gpt = Gpt(model, values, layout, attention)
    del values  # a file in memory, which is no part of training
    steps = adamw(gpt, model["optimizer"], **optimizers()[optimizer])
    ways = {"linear weights": layout, "scores": attention, "AdamW": optimizer, "gradients": zeroing}
    about = {"version": torch.__version__, "threads": torch.get_num_threads(), "ways": ways}

    following = itertools.cycle(batches)
    rates = itertools.cycle(model["rates"])

    def step():
        start = time.perf_counter()
        steps.zero_grad(set_to_none=zeroing == "freed")
        losses = []
        for ids, targets in itertools.islice(following, model["microBatches"]):
            loss = gpt.loss(ids, targets)
            (loss / model["microBatches"]).backward()
            losses.append(loss.detach())
        if model["clip"]:
            torch.nn.utils.clip_grad_norm_(gpt.weights.values(), model["clip"])
        rate = next(rates)
        for group in steps.param_groups:
            group["lr"] = rate
        steps.step()
        mean = torch.stack(losses).double().mean().item()
        return {"ms": 1000 * (time.perf_counter() - start), "loss": mean}

    def evaluate():
        with torch.no_grad():
            losses = [gpt.loss(ids, targets) for ids, targets in held_out]
        return {"loss": torch.stack(losses).double().mean().item()}

    answers = {"about": lambda: about, "step": step, "evaluate": evaluate}
    for line in sys.stdin:
        print(json.dumps(answers[line.strip()]()), flush=True)


if __name__ == "__main__":
    main()
