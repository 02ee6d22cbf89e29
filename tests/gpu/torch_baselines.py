"""GPT-2 124M and ResNet-50 as users of PyTorch train them: one line of JSON.

python3 torch_baselines.py gpt2|resnet50 eager|compile BATCH [--vocabulary N]
bf16 autocast, fused optimizers, attention by scaled_dot_product_attention, images channels last. torch.compile
sees the model and the loss together. The median of the steps after the warm-up. Exit status 77: PyTorch, or torchvision, or a GPU is not there.
"""

import argparse
import json
import sys
import time

WARM_UPS, STEPS = 5, 20


def language_model(batch, length=1024, layers=12, width=768, heads=12, vocabulary=50257):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (
                part.view(*part.shape[:2], heads, -1).transpose(1, 2)
                for part in self.project(self.first(x)).chunk(3, -1)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return functional.linear(self.norm(x), self.tokens.weight).view(-1, vocabulary)

    net = Net().cuda()
    tokens = torch.randint(vocabulary, (batch, length), device="cuda")
    return net, torch.optim.AdamW(net.parameters(), lr=6e-4, fused=True), tokens, tokens.view(-1)


def image_model(batch):
    import torch
    import torchvision

    net = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device="cuda")
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True), images, labels


def step_seconds(model, is_compiled, batch, vocabulary, steps):
    """Median seconds of the steps after the warm-up, by the device's events and by the wall clock."""
    import torch

    if model == "gpt2":
        net, optimizer, inputs, labels = language_model(batch, vocabulary=vocabulary)
    else:
        net, optimizer, inputs, labels = image_model(batch)

    def loss_of(inputs, labels):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return torch.nn.functional.cross_entropy(net(inputs), labels)

    forward = torch.compile(loss_of) if is_compiled else loss_of
    device_s, wall_s = [], []
    for _ in range(WARM_UPS + steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        started = time.perf_counter()
        begin.record()
        forward(inputs, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        wall_s.append(time.perf_counter() - started)
        device_s.append(begin.elapsed_time(end) * 1e-3)
    return tuple(sorted(seconds[WARM_UPS:])[steps // 2] for seconds in (device_s, wall_s))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["gpt2", "resnet50"])
    parser.add_argument("how", choices=["eager", "compile"])
    parser.add_argument("batch", type=int)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--warm-up", action="store_true", help="compile, and measure one step")
    asked = parser.parse_args()
    try:
        import torch

        if asked.model == "resnet50":
            import torchvision  # noqa: F401
    except ImportError as missing:
        print(f"absent: {missing}")
        return 77
    if not torch.cuda.is_available():
        print(f"absent: PyTorch {torch.__version__} finds no GPU")
        return 77
    device_s, wall_s = step_seconds(asked.model, asked.how == "compile", asked.batch, asked.vocabulary,
                                    1 if asked.warm_up else STEPS)
    print(json.dumps({
        "version": torch.__version__, "workload": asked.model, "how": asked.how, "batch": asked.batch,
        "vocabulary": asked.vocabulary, "device_time_s": device_s, "step_time_s": wall_s,
        "samples_per_s": asked.batch / wall_s, "peak_bytes": torch.cuda.max_memory_allocated(),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
