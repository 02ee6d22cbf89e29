#!/usr/bin/python3
"""Kernels and bytes of a training step: Trainyard's by the emulator of tests/gpu, llm.c's and eager PyTorch's.

    bench/gpu_traffic.py BUILD [--gpt-batch 16] [--image-batch 128] > traffic.json

BUILD has tests/gpu_cases and tests/libtrainyard_cuda_emulated.so. A tensor counts once per kernel that reads it and
once per kernel that writes it. A library call is one kernel, and its workspace is written once and read once.
GPT-2 124M of 1,024 tokens in bf16, ResNet-50 of 224 x 224 in bf16.

llm.c: the calls of gpt2_forward, gpt2_backward_and_reduce and gpt2_update in train_gpt2.cu (github.com/karpathy/llm.c
at 00247dc) with cuDNN's attention and its defaults, recompute=1 and gelu_fusion=0: separate GELU, recomputed;
accumulated bf16 gradients; fp32 master weights. A bias's gradient is two kernels (llmc/matmul.cuh, matmul_backward).

PyTorch: operations that autograd records of nanoGPT's model.py (github.com/karpathy/nanoGPT: fused attention, bf16
autocast over fp32 weights, fused AdamW, no dropout) and of torchvision's resnet.py (autocast, channels last, fused
SGD). Autocast runs layer_norm and cross_entropy in fp32 (PyTorch's list). The residual stream is fp32 because
embeddings are. Weights are cast once per step.
"""
import argparse
import json
import os
import subprocess

HALF, FULL = 2, 4
LAYERS, FEATURES, WORDS, SEQUENCE, HEADS = 12, 768, 50257, 1024, 12


def total(kernels):
    return {"launches": sum(k[1] for k in kernels), "read_bytes": sum(k[1] * k[2] for k in kernels),
            "written_bytes": sum(k[1] * k[3] for k in kernels)}  # fmt: skip


def gpt_parameters(words):
    c = FEATURES
    return words * c + SEQUENCE * c + LAYERS * (12 * c * c + 13 * c) + 2 * c


def llm_c(batch):
    """Rows of (kernel, launches, bytes read, bytes written)."""
    n, c, words = batch * SEQUENCE, FEATURES, 50304
    a, stats, scores = n * c * HALF, 2 * n * FULL, n * words * HALF
    square, log_sums = c * c * HALF, batch * HEADS * SEQUENCE * FULL
    parameters = gpt_parameters(words)

    def product(name, rows_in, rows_out):  # forward, in units of c features
        return (name, LAYERS, rows_in * a + rows_in * rows_out * square, rows_out * a)

    def product_back(name, rows_in, rows_out):
        weight = rows_in * rows_out * square
        return [(name + " bias", LAYERS, rows_out * a, 0), (name + " bias sum", LAYERS, 0, rows_out * c * HALF),
                (name + " input", LAYERS, rows_out * a + weight, rows_in * a),
                (name + " weight", LAYERS, (rows_in + rows_out) * a + weight, weight)]  # fmt: skip

    forward = [
        ("encoder", 1, a + SEQUENCE * c * HALF + n * FULL, a), ("first norm", 1, a, a + stats),
        product("qkv", 1, 3), ("attention", LAYERS, 3 * a, a + log_sums), product("attproj", 1, 1),
        ("sum and norm", 2 * LAYERS, 2 * a, 2 * a + stats), product("fc", 1, 4), ("gelu", LAYERS, 4 * a, 4 * a),
        product("fcproj", 4, 1), ("logits", 1, a + words * c * HALF, scores),
    ]  # fmt: skip
    backward = [
        ("classifier", 1, scores, scores), ("clear", 1, 0, a), ("logits input", 1, scores + words * c * HALF, a),
        ("logits weight", 1, scores + a + words * c * HALF, words * c * HALF),
        ("norms", 2 * LAYERS + 1, 3 * a + stats, a), ("gelu again", LAYERS, 4 * a, 4 * a),
        ("gelu back", LAYERS, 8 * a, 4 * a), ("attention", LAYERS, 5 * a + log_sums, 3 * a),
        ("encoder", 2, a, a),
    ] + product_back("qkv", 1, 3) + product_back("attproj", 1, 1) + product_back("fc", 1, 4) + product_back("fcproj", 4, 1)  # fmt: skip
    update = [("norm", 2, parameters * HALF / 2, 0), ("adamw", 16, parameters * (HALF + 3 * FULL) / 16, parameters * (HALF + 3 * FULL) / 16)]
    return {"forward": total(forward), "backward": total(backward), "update": total(update)}


def nano_gpt(batch):
    n, c = batch * SEQUENCE, FEATURES
    u, scores = n * c, n * WORDS
    matrix, log_sums = c * c, batch * HEADS * SEQUENCE * FULL
    parameters = gpt_parameters(WORDS)

    def product(name, rows_in, rows_out):
        weight = rows_in * rows_out * matrix
        return [(name, LAYERS, (rows_in * u + weight) * HALF, rows_out * u * HALF),
                (name + " cast weight and bias", 2 * LAYERS, (weight + rows_out * c) * FULL / 2, (weight + rows_out * c) * HALF / 2)]  # fmt: skip

    def product_back(name, rows_in, rows_out):
        weight = rows_in * rows_out * matrix
        return [(name + " input", LAYERS, (rows_out * u + weight) * HALF, rows_in * u * HALF),
                (name + " weight", LAYERS, (rows_in + rows_out) * u * HALF, weight * HALF),
                (name + " bias", LAYERS, rows_out * u * HALF, 0),
                (name + " cast weight and bias", 2 * LAYERS, weight * HALF / 2, weight * FULL / 2)]  # fmt: skip

    norms = 2 * LAYERS + 1
    forward = [
        ("words", 1, u * FULL, u * FULL), ("positions", 1, SEQUENCE * c * FULL, SEQUENCE * c * FULL),
        ("sum", 1, u * FULL, u * FULL), ("norms", norms, u * FULL, u * FULL + 2 * n * FULL),
        ("cast of norms", norms, u * FULL, u * HALF), ("attention", LAYERS, 3 * u * HALF, u * HALF + log_sums),
        ("residual", 2 * LAYERS, u * (HALF + FULL), u * FULL), ("gelu", LAYERS, 4 * u * HALF, 4 * u * HALF),
        ("head cast", 1, WORDS * c * FULL, WORDS * c * HALF), ("head", 1, u * HALF + WORDS * c * HALF, scores * HALF),
        ("scores cast", 1, scores * HALF, scores * FULL), ("log softmax", 1, scores * FULL, scores * FULL), ("loss", 1, n * FULL, 0),
    ] + product("qkv", 1, 3) + product("attproj", 1, 1) + product("fc", 1, 4) + product("fcproj", 4, 1)  # fmt: skip
    backward = [
        ("loss", 2, 0, scores * FULL / 2), ("log softmax", 1, 2 * scores * FULL, scores * FULL), ("scores cast", 1, scores * FULL, scores * HALF),
        ("head input", 1, scores * HALF + WORDS * c * HALF, u * HALF), ("head weight", 1, scores * HALF + u * HALF, WORDS * c * HALF),
        ("head cast", 1, WORDS * c * HALF, WORDS * c * FULL), ("cast to norms", norms, u * HALF, u * FULL),
        ("norms input", norms, 2 * u * FULL, u * FULL), ("norms gain", norms, 2 * u * FULL, 0),
        ("residual add", 2 * LAYERS, 2 * u * FULL, u * FULL), ("residual cast", 2 * LAYERS, u * FULL, u * HALF),
        ("gelu", LAYERS, 8 * u * HALF, 4 * u * HALF), ("attention", LAYERS, 5 * u * HALF + log_sums, 3 * u * HALF),
        ("qkv joined", LAYERS, 3 * u * HALF, 3 * u * HALF), ("words", 2, u * FULL, WORDS * c * FULL / 2),
        ("tied sum", 1, 2 * WORDS * c * FULL, WORDS * c * FULL), ("positions", 2, u * FULL / 2, SEQUENCE * c * FULL),
    ] + product_back("qkv", 1, 3) + product_back("attproj", 1, 1) + product_back("fc", 1, 4) + product_back("fcproj", 4, 1)  # fmt: skip
    update = [("adamw", 1, parameters * 4 * FULL, parameters * 3 * FULL)]
    return {"forward": total(forward), "backward": total(backward), "update": total(update)}


def resnet_convolutions():
    """(channels in, channels out, kernel, side in, side out, ReLU after its norm), and sums: (channels, side)."""
    made, sums, channels, side = [(3, 64, 7, 224, 112, True)], [], 64, 56
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for b in range(blocks):
            out = side // (stride if b == 0 else 1)
            made += [(channels, width, 1, side, side, True), (width, width, 3, side, out, True), (width, 4 * width, 1, out, out, False)]
            if b == 0:
                made.append((channels, 4 * width, 1, side, out, False))
            channels, side = 4 * width, out
            sums.append((channels, side))
    return made, sums


def torchvision_resnet(batch):
    convolutions, sums = resnet_convolutions()
    image, last, classes = batch * 64 * 112 * 112 * HALF, batch * 2048 * HALF, 1000
    forward, backward, parameters = [], [], 2048 * classes + classes
    for i, (cin, cout, kernel, side, out, has_relu) in enumerate(convolutions):
        x, y, w = batch * cin * side * side * HALF, batch * cout * out * out * HALF, cin * cout * kernel * kernel
        forward += [("convolution", 1, x + w * HALF, y), ("cast", 1, w * FULL, w * HALF), ("batch norm", 1, y, y)]
        backward += [("batch norm", 1, 2 * y, y), ("weight", 1, x + y, w * HALF), ("cast", 1, w * HALF, w * FULL)]
        backward += [("input", 1, y + w * HALF, x)] if i > 0 else []
        forward += [("relu", 1, y, y)] if has_relu else []
        backward += [("relu", 1, 2 * y, y)] if has_relu else []
        parameters += w + 2 * cout
    for channels, side in sums:
        y = batch * channels * side * side * HALF
        forward += [("sum", 1, 2 * y, y), ("relu", 1, y, y)]
        backward += [("relu", 1, 2 * y, y), ("gradients of what is read twice", 1, 2 * y, y)]
    ends = last + (2048 * HALF + FULL) * classes, batch * classes * FULL
    forward += [("maximum", 1, image, image / 4), ("average", 1, 49 * last, last), ("linear", 1, ends[0], ends[1] / 2), ("loss", 3, ends[1], ends[1])]
    backward += [("maximum", 1, image / 2, image), ("average", 1, last, 49 * last), ("linear", 3, ends[0], last), ("loss", 3, ends[1], ends[1])]
    update = [("sgd", 1, parameters * 3 * FULL, parameters * 2 * FULL)]
    return {"forward": total(forward), "backward": total(backward), "update": total(update)}


def ours(build, workload, batch, attention="auto"):
    environment = dict(os.environ, TRAINYARD_CUDA_PLUGIN=os.path.join(build, "tests/libtrainyard_cuda_emulated.so"),
                       TRAINYARD_CUDA_ATTENTION=attention)  # fmt: skip
    environment.setdefault("TRAINYARD_DATA", os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    done = subprocess.run([os.path.join(build, "tests/gpu_cases"), "--count", workload, "bf16", str(batch)],
                          env=environment, stdout=subprocess.PIPE, check=True)  # fmt: skip
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--gpt-batch", type=int, default=16)
    parser.add_argument("--image-batch", type=int, default=128)
    options = parser.parse_args()
    rows = {
        f"gpt2, {options.gpt_batch} samples": {
            "trainyard": ours(options.build, "gpt2", options.gpt_batch),
            "trainyard, own attention": ours(options.build, "gpt2", options.gpt_batch, "own"), "llm.c": llm_c(options.gpt_batch), "pytorch": nano_gpt(options.gpt_batch)},
        f"resnet50, {options.image_batch} samples": {
            "trainyard": ours(options.build, "resnet50", options.image_batch), "pytorch": torchvision_resnet(options.image_batch)},
    }  # fmt: skip
    for row in rows.values():
        for of in row.values():
            phases = [of[phase] for phase in ("forward", "backward", "update")]
            of["step"] = {key: round(sum(phase[key] for phase in phases)) for key in ("launches", "read_bytes", "written_bytes")}
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
