"""Converts a torch model to a workload: its modules, with the shapes of their inputs and outputs."""

from ._library import UsageError

_BYTES = 4  # per element: torch's default float


def _torch():
    try:
        import torch
    except ImportError as error:
        raise ImportError("trainyard.trace reads modules of torch, which is not installed") from error
    return torch


def _elements(value):
    """Number of elements of all tensors in a module's inputs or outputs."""
    if hasattr(value, "numel"):
        return value.numel()
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__") and not isinstance(value, str):
        return sum(_elements(each) for each in value)
    return 0


def _first(value):
    """The first tensor of a batch."""
    if hasattr(value, "numel"):
        return value
    for each in value.values() if isinstance(value, dict) else value:
        return _first(each)
    raise UsageError("batch: found no tensor in it, expected some whose first dimension are the samples")


def _shape(value, samples):
    """Shape of a sample: at most four dimensions, else its number of elements."""
    tensor = value if hasattr(value, "shape") else None
    sizes = [int(size) for size in tensor.shape[1:]] if tensor is not None else []
    if sizes and len(sizes) <= 4 and tensor.shape[0] == samples:
        return sizes
    return [max(_elements(value) // samples, 1)]


def _forward_flop(module, given, gave):
    """FLOPs of a leaf module for all samples of the batch; a multiply-add counts 2. Modules without
    products count one per output element."""
    name = type(module).__name__
    out = _elements(gave)
    if name == "Linear":
        return 2 * out * module.in_features
    if name.startswith("Conv"):
        window = 1
        for size in module.kernel_size:
            window *= size
        per_output = 2 * window * module.in_channels // module.groups
        return per_output * (_elements(given) // module.in_channels * module.out_channels if "Transpose" in name
                             else out)
    if name in ("LSTM", "GRU", "RNN"):
        steps = _elements(given) // module.input_size
        return 2 * steps * sum(p.numel() for p in module.parameters())
    if name == "MultiheadAttention":
        query, key = given[0], given[1]
        tokens, sources = query.numel() // module.embed_dim, key.shape[1 if module.batch_first else 0]
        return 2 * tokens * (4 * module.embed_dim**2 + 2 * sources * module.embed_dim)
    return out


def trace(model, batch, name=None, global_batch=None, dataset="synthetic"):
    """Converts a torch.nn.Module to a Workload, layer by layer in the order of a forward pass.

    model: any module. A leaf is a module without children, or one that torch computes as one operation, such
        as MultiheadAttention. Code between leaves in forward() is not seen and does not count.
    batch: arguments of the model: a tensor, or a tuple or dict of tensors, with samples as first dimension.
    global_batch: samples per step (default: those of the batch)

    Layers have the parameters, activations and FLOPs of their shapes; the planner predicts their times.
    """
    torch = _torch()
    from . import Workload

    if not isinstance(model, torch.nn.Module):
        raise UsageError("model: found %s, expected a torch.nn.Module" % type(model).__name__)
    samples = int(_first(batch).shape[0])
    layers, hooks, counted, calls = [], [], set(), {}
    whole = (torch.nn.MultiheadAttention,)

    def hook(path):
        def see(module, given, gave):
            own = [p for p in module.parameters() if id(p) not in counted]
            counted.update(id(p) for p in own)  # a second call of a module adds none
            flop = _forward_flop(module, given, gave) / samples
            bytes_in, bytes_out = (_BYTES * _elements(each) // samples for each in (given, gave))
            parameter_bytes = _BYTES * sum(p.numel() for p in own)
            called = calls[path] = calls.get(path, 0) + 1
            layer = {
                "name": path.replace(".", "-") + ("" if called == 1 else "-%d" % called),
                "kind": "opaque",
                "attributes": {},
                "inputs": [len(layers) - 1] if layers else [],
                "output_shape": _shape(gave, samples),
                "forward_flop": flop,
                # With weights, the gradients of inputs and of weights are one product of this size each.
                "backward_flop": 2 * flop if own else flop,
                "parameter_bytes": parameter_bytes,
                "output_bytes": bytes_out,
                "stash_bytes": bytes_out,
                "traffic_bytes": bytes_in + bytes_out,
                "kernel_count": 1,
            }
            if own and not any(p.requires_grad for p in own):
                layer["is_frozen"] = True
            layers.append(layer)

        return see

    inside = set()
    for path, module in model.named_modules():
        if any(path.startswith(each + ".") for each in inside):
            continue
        if isinstance(module, whole):
            inside.add(path)
        if isinstance(module, whole) or next(module.children(), None) is None:
            hooks.append(module.register_forward_hook(hook(path or type(module).__name__.lower())))
    was_training = model.training
    try:
        model.eval()
        with torch.no_grad():
            if isinstance(batch, dict):
                model(**batch)
            elif isinstance(batch, (list, tuple)):
                model(*batch)
            else:
                model(batch)
    finally:
        model.train(was_training)
        for each in hooks:
            each.remove()
    if not layers:
        raise UsageError("model: found no module that was called, expected some with forward()")
    first = _first(batch)
    tokens = first.numel() // samples if not first.is_floating_point() else 0
    return Workload(
        {
            "schema": "trainyard.workload/1",
            "name": name or type(model).__name__.lower(),
            "source": "traced from %s.%s by trainyard.trace" % (type(model).__module__, type(model).__qualname__),
            "element_bytes": _BYTES,
            "input_kind": "token" if tokens else "real",
            "input_shape": _shape(first, samples),
            "sample_bytes": first.numel() * first.element_size() // samples,
            "tokens_per_sample": tokens,
            "dataset": dataset,
            "global_batch": global_batch or samples,
            "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0},
            "layers": layers,
        }
    )
