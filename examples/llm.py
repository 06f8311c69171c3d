"""A small Llama-like decoder: prefill a prompt, decode tokens one by one, or train."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 128, 256),
    "small": Shape(8, 512, 8, 4, 1408, 8192),
    "7b": Shape(32, 4096, 32, 32, 11008, 32000),
}


class RMSNorm(nn.Module):
    """Spelled out as most model code has it: six kernels per call unless it is compiled."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.kv_heads, self.size = shape.heads, shape.kv_heads, shape.hidden // shape.heads
        self.q = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k = nn.Linear(shape.hidden, self.kv_heads * self.size, bias=False)
        self.v = nn.Linear(shape.hidden, self.kv_heads * self.size, bias=False)
        self.o = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x, cos, sin, cache, position):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mask = None
        if cache is not None:
            k, v, mask = cache.extend(self, k, v, position)
        grouped = self.heads != self.kv_heads
        causal = mask is None and length > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.before_attention = RMSNorm(shape.hidden)
        self.attention = Attention(shape)
        self.before_mlp = RMSNorm(shape.hidden)
        self.gate = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x, cos, sin, cache, position):
        x = x + self.attention(self.before_attention(x), cos, sin, cache, position)
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, shape, length):
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        size = shape.hidden // shape.heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, positions, cache=None):
        cos, sin = self.cos[positions], self.sin[positions]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin, cache, positions)
        return self.head(self.norm(x))


class GrowingCache:
    """Concatenates: every token allocates and copies all keys and values anew."""

    def __init__(self):
        self.kept = {}

    def extend(self, layer, k, v, position):
        if layer in self.kept:
            old_k, old_v = self.kept[layer]
            k, v = torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        self.kept[layer] = (k, v)
        return k, v, None


class StaticCache:
    """Writes into place; shapes never change, so that a step can be compiled or captured."""

    def __init__(self, model, shape, batch, length, device, dtype):
        size = (batch, shape.kv_heads, length, shape.hidden // shape.heads)
        self.kept = {
            b.attention: (torch.zeros(size, device=device, dtype=dtype), torch.zeros(size, device=device, dtype=dtype))
            for b in model.blocks
        }
        self.index = torch.arange(length, device=device)
        for pair in self.kept.values():
            for tensor in pair:
                # A captured graph may write to memory only if it is told that the address stays.
                torch._dynamo.mark_static_address(tensor)

    def extend(self, layer, k, v, position):
        keys, values = self.kept[layer]
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        return keys, values, self.index[None, :] <= position[:, None]


def rotate(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["prefill", "decode", "train"], nargs="?", default="prefill")
    parser.add_argument("--shape", choices=list(SHAPES), default=None, help="small on a GPU, tiny on the CPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=None, help="128 on a GPU, 16 on the CPU unless given")
    parser.add_argument("--cache", choices=["growing", "static"], default="growing")
    parser.add_argument("--stop-test", action="store_true", help="ask for an end token after every token")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default=None)
    parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    on_gpu = args.device.startswith("cuda")
    shape = SHAPES[args.shape or ("small" if on_gpu else "tiny")]
    prompt = args.prompt or (128 if on_gpu else 16)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    length = prompt + args.steps
    with torch.device(args.device):
        model = Decoder(shape, length).to(dtype)
        tokens = torch.randint(0, shape.vocabulary, (args.batch, prompt))
        positions = torch.arange(length)
    call = torch.compile(model, mode=args.mode) if args.compile else model

    if args.task == "train":
        choice = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[args.optimizer]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **choice)
        for _ in range(args.steps):
            logits = call(tokens, positions[:prompt])
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"llm: {args.steps} training steps on {args.device}, loss {loss.item():.3f}")
        return

    model.eval()
    with torch.no_grad():
        if args.task == "prefill":
            for _ in range(args.steps):
                call(tokens, positions[:prompt])
        else:
            growing = args.cache == "growing"
            cache = GrowingCache() if growing else StaticCache(model, shape, args.batch, length, args.device, dtype)
            token = model(tokens, positions[:prompt], cache)[:, -1:].argmax(-1)
            for n in range(args.steps):
                token = call(token, positions[prompt + n : prompt + n + 1], cache)[:, -1:].argmax(-1)
                if args.stop_test and bool((token == shape.vocabulary).all()):
                    break
    print(f"llm: {args.steps} steps of {args.task} on {args.device}")


if __name__ == "__main__":
    main()
