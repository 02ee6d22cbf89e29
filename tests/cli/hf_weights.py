"""Small checkpoints in Hugging Face's format, and their results by plain arithmetic.

    hf_weights.py write FAMILY FILE [--type F32|F16|BF16] [--shards N] [--bare]
    hf_weights.py loss FAMILY FILE TEXT       mean loss of next tokens over all windows of a text
    hf_weights.py same A B [TOLERANCE]        the same tensors; without a tolerance bit for bit
    hf_weights.py workload FAMILY FILE        the model as a file of the zoo

Layouts, names and passes are those of transformers' modeling_gpt2, _llama, _qwen3 and _bert, with 1e-5
in norms and gelu in its tanh form, as the worker has them. Numbers are odd multiples of 1/128 below 2, so
that every type has them exactly.
"""
import json
import math
import random
import struct
import sys

F, HEADS, KV, HIDDEN, WORDS, TOKENS, BLOCKS = 8, 2, 1, 12, 13, 6, 2
SIZE = F // HEADS
EPSILON = 1e-5
ROTARY = 20


# ---- Shapes ----------------------------------------------------------------------------------

def norm_shapes(name):
    return {name + ".weight": [F], name + ".bias": [F]}


def affine_shapes(name, outputs, inputs):
    return {name + ".weight": [outputs, inputs], name + ".bias": [outputs]}


def gpt2_shapes():
    shapes = {"transformer.wte.weight": [WORDS, F], "transformer.wpe.weight": [TOKENS, F]}
    for b in range(BLOCKS):
        at = f"transformer.h.{b}."
        shapes |= norm_shapes(at + "ln_1") | norm_shapes(at + "ln_2")
        for name, inputs, outputs in (("attn.c_attn", F, 3 * F), ("attn.c_proj", F, F),
                                      ("mlp.c_fc", F, HIDDEN), ("mlp.c_proj", HIDDEN, F)):
            shapes |= {at + name + ".weight": [inputs, outputs], at + name + ".bias": [outputs]}
    return shapes | norm_shapes("transformer.ln_f")


def llama_shapes(qwen=False):
    shapes = {"model.embed_tokens.weight": [WORDS, F], "model.norm.weight": [F], "lm_head.weight": [WORDS, F]}
    for b in range(BLOCKS):
        at = f"model.layers.{b}."
        shapes |= {at + "input_layernorm.weight": [F], at + "post_attention_layernorm.weight": [F],
                   at + "self_attn.q_proj.weight": [HEADS * SIZE, F], at + "self_attn.k_proj.weight": [KV * SIZE, F],
                   at + "self_attn.v_proj.weight": [KV * SIZE, F], at + "self_attn.o_proj.weight": [F, HEADS * SIZE],
                   at + "mlp.gate_proj.weight": [HIDDEN, F], at + "mlp.up_proj.weight": [HIDDEN, F],
                   at + "mlp.down_proj.weight": [F, HIDDEN]}
        if qwen:
            shapes |= {at + "self_attn.q_norm.weight": [SIZE], at + "self_attn.k_norm.weight": [SIZE]}
    return shapes


def bert_shapes():
    shapes = {"bert.embeddings.word_embeddings.weight": [WORDS, F],
              "bert.embeddings.position_embeddings.weight": [TOKENS, F],
              "bert.embeddings.token_type_embeddings.weight": [2, F], "cls.predictions.bias": [WORDS]}
    shapes |= norm_shapes("bert.embeddings.LayerNorm")
    for b in range(BLOCKS):
        at = f"bert.encoder.layer.{b}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= affine_shapes(at + "attention." + name, F, F)
        shapes |= norm_shapes(at + "attention.output.LayerNorm") | norm_shapes(at + "output.LayerNorm")
        shapes |= affine_shapes(at + "intermediate.dense", HIDDEN, F) | affine_shapes(at + "output.dense", F, HIDDEN)
    return shapes | affine_shapes("cls.predictions.transform.dense", F, F) | norm_shapes("cls.predictions.transform.LayerNorm")


# ---- Files -----------------------------------------------------------------------------------

PACK = {"F32": lambda v: struct.pack(f"<{len(v)}f", *v), "F16": lambda v: struct.pack(f"<{len(v)}e", *v),
        "BF16": lambda v: b"".join(struct.pack("<f", x)[2:] for x in v)}


def write(path, tensors, kind):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        packed = PACK[kind](values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        bytes_ = file.read()
    length = struct.unpack("<Q", bytes_[:8])[0]
    header, tensors = json.loads(bytes_[8:8 + length]), {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "F32", t
            first, end = t["data_offsets"]
            tensors[name] = (t["shape"], list(struct.unpack(f"<{(end - first) // 4}f", bytes_[8 + length + first:8 + length + end])))
    return tensors


# ---- Passes ----------------------------------------------------------------------------------

class Model:
    def __init__(self, tensors):
        self.tensors = tensors

    def vector(self, name):
        return self.tensors[name][1]

    def rows(self, name):
        shape, values = self.tensors[name]
        return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]

    def affine(self, x, name, transposed=False):
        w = self.rows(name + ".weight")
        if transposed:
            w = [list(column) for column in zip(*w)]
        b = self.tensors[name + ".bias"][1] if name + ".bias" in self.tensors else [0] * len(w)
        return [[sum(a * c for a, c in zip(row, r)) + bias for r, bias in zip(w, b)] for row in x]

    def layer_norm(self, x, name):
        out = []
        for row in x:
            mean = sum(row) / len(row)
            scale = 1 / math.sqrt(sum((a - mean) ** 2 for a in row) / len(row) + EPSILON)
            out.append([(a - mean) * scale * g + s for a, g, s in zip(row, self.vector(name + ".weight"), self.vector(name + ".bias"))])
        return out

    def rms_norm(self, x, name):
        return [[a * g / math.sqrt(sum(b * b for b in row) / len(row) + EPSILON)
                 for a, g in zip(row, self.vector(name + ".weight"))] for row in x]


def heads_of(x, count):
    return [[row[h * SIZE:(h + 1) * SIZE] for row in x] for h in range(count)]


def attend(queries, keys, values, is_causal):
    """Heads of rows; neighboring query heads share keys and values."""
    rows = [[] for _ in queries[0]]
    for h, q in enumerate(queries):
        k, v = keys[h * len(keys) // len(queries)], values[h * len(keys) // len(queries)]
        for t, row in enumerate(q):
            seen = t + 1 if is_causal else len(k)
            scores = [sum(a * b for a, b in zip(row, k[s])) / math.sqrt(SIZE) for s in range(seen)]
            most = max(scores)
            p = [math.exp(s - most) for s in scores]
            total = sum(p)
            rows[t] += [sum(p[s] / total * v[s][i] for s in range(seen)) for i in range(SIZE)]
    return rows


def add(x, y):
    return [[a + b for a, b in zip(r, s)] for r, s in zip(x, y)]


def gelu(x):
    return [[0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3))) for a in row] for row in x]


def gpt2(m, tokens):
    x = [[a + b for a, b in zip(m.rows("transformer.wte.weight")[t], m.rows("transformer.wpe.weight")[p])] for p, t in enumerate(tokens)]
    for b in range(BLOCKS):
        at = f"transformer.h.{b}."
        qkv = m.affine(m.layer_norm(x, at + "ln_1"), at + "attn.c_attn", True)
        parts = [heads_of([row[i * F:(i + 1) * F] for row in qkv], HEADS) for i in range(3)]
        x = add(x, m.affine(attend(*parts, True), at + "attn.c_proj", True))
        x = add(x, m.affine(gelu(m.affine(m.layer_norm(x, at + "ln_2"), at + "mlp.c_fc", True)), at + "mlp.c_proj", True))
    return m.affine(m.layer_norm(x, "transformer.ln_f"), "transformer.wte")


def rotate(x):
    """rotate_half of modeling_llama: cos x + sin [-second half, first half]."""
    out = []
    for p, row in enumerate(x):
        angles = [p / ROTARY ** (2 * (i % (SIZE // 2)) / SIZE) for i in range(SIZE)]
        turned = [-a for a in row[SIZE // 2:]] + row[:SIZE // 2]
        out.append([a * math.cos(w) + b * math.sin(w) for a, b, w in zip(row, turned, angles)])
    return out


def llama(m, tokens):
    x = [m.rows("model.embed_tokens.weight")[t] for t in tokens]
    for b in range(BLOCKS):
        at = f"model.layers.{b}."
        y = m.rms_norm(x, at + "input_layernorm")
        q, k, v = (heads_of(m.affine(y, at + f"self_attn.{n}_proj"), c) for n, c in (("q", HEADS), ("k", KV), ("v", KV)))
        if at + "self_attn.q_norm.weight" in m.tensors:
            q = [m.rms_norm(h, at + "self_attn.q_norm") for h in q]
            k = [m.rms_norm(h, at + "self_attn.k_norm") for h in k]
        x = add(x, m.affine(attend([rotate(h) for h in q], [rotate(h) for h in k], v, True), at + "self_attn.o_proj"))
        y = m.rms_norm(x, at + "post_attention_layernorm")
        gate, up = m.affine(y, at + "mlp.gate_proj"), m.affine(y, at + "mlp.up_proj")
        x = add(x, m.affine([[g / (1 + math.exp(-g)) * u for g, u in zip(r, s)] for r, s in zip(gate, up)], at + "mlp.down_proj"))
    return m.affine(m.rms_norm(x, "model.norm"), "lm_head")


def bert(m, tokens):
    e = "bert.embeddings."
    x = [[a + b + c for a, b, c in zip(m.rows(e + "word_embeddings.weight")[t], m.rows(e + "position_embeddings.weight")[p],
                                       m.rows(e + "token_type_embeddings.weight")[0])] for p, t in enumerate(tokens)]
    x = m.layer_norm(x, e + "LayerNorm")
    for b in range(BLOCKS):
        at = f"bert.encoder.layer.{b}."
        parts = [heads_of(m.affine(x, at + "attention.self." + n), HEADS) for n in ("query", "key", "value")]
        x = m.layer_norm(add(x, m.affine(attend(*parts, False), at + "attention.output.dense")), at + "attention.output.LayerNorm")
        y = m.affine(gelu(m.affine(x, at + "intermediate.dense")), at + "output.dense")
        x = m.layer_norm(add(x, y), at + "output.LayerNorm")
    x = m.layer_norm(gelu(m.affine(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    return [[a + b for a, b in zip(row, m.vector("cls.predictions.bias"))] for row in m.affine(x, e + "word_embeddings")]


FAMILIES = {
    "gpt2": (gpt2_shapes, gpt2, TOKENS, {"family": "transformer", "positions": TOKENS}),
    "llama": (llama_shapes, llama, TOKENS, {"family": "decoder", "kv_heads": KV, "rotary_base": ROTARY, "longest_sequence": TOKENS}),
    "qwen3": (lambda: llama_shapes(True), llama, TOKENS,
              {"family": "decoder", "kv_heads": KV, "rotary_base": ROTARY, "longest_sequence": TOKENS, "has_qk_norm": True}),
    "bert": (bert_shapes, bert, TOKENS, {"family": "encoder", "positions": TOKENS, "token_types": 2, "head": "masked"}),
}


def make(family):
    numbers, tensors = random.Random(family), {}
    for name, shape in FAMILIES[family][0]().items():
        centre = 128 if "norm" in name.lower() or "ln_" in name else 0
        values = [(2 * numbers.randint(-32, 31) + 1 + (centre if name.endswith("weight") else 0)) / 128 for _ in range(math.prod(shape))]
        tensors[name] = (shape, values)
    return tensors


def loss(family, tensors, text):
    window, total, count = FAMILIES[family][2] + 1, 0, 0
    tokens = list(text[:len(text) - len(text) // 10])  # the last tenth is for testing
    for start in range(len(tokens) - window + 1):
        sample = tokens[start:start + window]
        logits = FAMILIES[family][1](Model(tensors), sample[:-1])
        for row, label in zip(logits, sample[-len(logits):]):
            most = max(row)
            total += most + math.log(sum(math.exp(a - most) for a in row)) - row[label]
            count += 1
    return total / count


def same(a, b, tolerance):
    assert list(a) == list(b) or sorted(a) == sorted(b), set(a) ^ set(b)
    for name, (shape, values) in a.items():
        assert b[name][0] == shape, (name, shape, b[name][0])
        for x, y in zip(values, b[name][1]):
            assert x == y if tolerance is None else abs(x - y) <= tolerance, (name, x, y)


def main(words):
    what = words[0]
    if what == "write":
        family, path = words[1:3]
        kind = words[words.index("--type") + 1] if "--type" in words else "F32"
        tensors = make(family)
        if "--bare" in words:
            tensors = {n.removeprefix("transformer.").removeprefix("model.").removeprefix("bert."): t for n, t in tensors.items()}
        if "--shards" not in words:
            return write(path, tensors, kind)
        count, names = int(words[words.index("--shards") + 1]), list(tensors)
        index = {"metadata": {"total_size": 0}, "weight_map": {}}
        for s in range(count):
            file = f"model-{s + 1:05}-of-{count:05}.safetensors"
            write(path.rsplit("/", 1)[0] + "/" + file, {n: tensors[n] for n in names[s::count]}, kind)
            index["weight_map"] |= {n: file for n in names[s::count]}
        with open(path, "w") as out:
            json.dump(index, out)
    elif what == "loss":
        with open(words[3], "rb") as text:
            print(repr(loss(words[1], read(words[2]), text.read())))
    elif what == "same":
        same(read(words[1]), read(words[2]), float(words[3]) if len(words) > 3 else None)
    elif what == "workload":
        sizes = {"schema": "trainyard.zoo/1", "name": "small-" + words[1], "source": "a test", "blocks": BLOCKS, "features": F, "heads": HEADS,
                 "hidden_features": HIDDEN, "vocabulary": WORDS, "sequence": TOKENS, "token_bytes": 1, "dataset": "text",
                 "global_batch": 12, "optimizer": {"kind": "sgd", "learning_rate": 1e-30, "momentum": 0, "weight_decay": 0}}
        with open(words[2], "w") as out:
            json.dump(sizes | FAMILIES[words[1]][3], out)


main(sys.argv[1:])
