"""GPT-2 124M and ResNet-50 as users of PyTorch train them: one line of JSON.

python3 torch_baselines.py gpt2|resnet50 eager|compile BATCH
bf16 autocast, fused optimizers, attention by scaled_dot_product_attention, images channels last. The
median of steps behind those that load and compile. Exit status 77: PyTorch, or torchvision, or a GPU is not there.
"""

import json
import sys
import time

WARM_UPS, STEPS = 5, 10


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


def seconds_of_step(model, is_compiled, batch):
    import torch

    net, optimizer, inputs, labels = (language_model if model == "gpt2" else image_model)(batch)
    forward = torch.compile(net) if is_compiled else net
    seconds = []
    for _ in range(WARM_UPS + STEPS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds[WARM_UPS:])[STEPS // 2]


def main(model, how, batch):
    try:
        import torch

        if model == "resnet50":
            import torchvision  # noqa: F401
    except ImportError as missing:
        print(f"absent: {missing}")
        return 77
    if not torch.cuda.is_available():
        print(f"absent: PyTorch {torch.__version__} finds no GPU")
        return 77
    step_s = seconds_of_step(model, how == "compile", batch)
    print(json.dumps({
        "version": torch.__version__, "workload": model, "how": how, "batch": batch, "step_time_s": step_s,
        "samples_per_s": batch / step_s, "peak_bytes": torch.cuda.max_memory_allocated(),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
