"""BERT in NumPy and float64, written from the paper for tests to compare with.

Nothing is shared with the library but the names of the variables: one sequence,
one head and one projection at a time, padding included.
"""

import numpy as np

INVERSE_SQRT_2_PI = np.sqrt(2.0 / np.pi)
ACTIVATIONS = {
    "gelu": lambda x: (
        0.5 * x * (1.0 + np.tanh(INVERSE_SQRT_2_PI * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def random_weights(shapes, seed=0):
    """Weights large enough that every variable shows in the outputs."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith("gamma"):
            value = rng.uniform(0.5, 1.5, shape)
        elif name.endswith("kernel"):
            value = rng.normal(0.0, shape[0] ** -0.5, shape)
        else:
            value = rng.normal(0.0, 0.3, shape)
        # float32, so that the library's copy is the same number.
        weights[name] = value.astype(np.float32).astype(np.float64)
    return weights


def softmax(x):
    """Of the last axis."""
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def dense(x, weights, scope):
    """x @ kernel + bias."""
    return x @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]


def layer_norm(x, weights, scope, epsilon=1e-12):
    """Of the last axis."""
    deviation = x - x.mean(axis=-1, keepdims=True)
    x = deviation / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return x * weights[f"{scope}/gamma"] + weights[f"{scope}/beta"]


def encode_sequence(weights, config, input_ids, input_mask, segment_ids):
    """[S] ids to the list of embedding output and every layer's, [S, H]."""
    act = ACTIVATIONS[config.hidden_act]
    head_size = config.hidden_size // config.num_attention_heads
    tables = "bert/embeddings"
    x = np.stack(
        [
            weights[f"{tables}/word_embeddings"][token]
            + weights[f"{tables}/token_type_embeddings"][segment]
            + weights[f"{tables}/position_embeddings"][position]
            for position, (token, segment) in enumerate(
                zip(input_ids, segment_ids, strict=True)
            )
        ]
    )
    x = layer_norm(x, weights, f"{tables}/LayerNorm")
    outputs = [x]
    adder = np.where(np.asarray(input_mask) == 0, -10000.0, 0.0)
    for i in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{i}"
        query, key, value = (
            dense(x, weights, f"{layer}/attention/self/{part}")
            for part in ("query", "key", "value")
        )
        contexts = []
        for head in range(config.num_attention_heads):
            columns = slice(head * head_size, (head + 1) * head_size)
            scores = query[:, columns] @ key[:, columns].T / np.sqrt(head_size)
            contexts.append(softmax(scores + adder) @ value[:, columns])
        attended = dense(
            np.concatenate(contexts, axis=1),
            weights,
            f"{layer}/attention/output/dense",
        )
        x = layer_norm(
            attended + x, weights, f"{layer}/attention/output/LayerNorm"
        )
        widened = act(dense(x, weights, f"{layer}/intermediate/dense"))
        x = layer_norm(
            dense(widened, weights, f"{layer}/output/dense") + x,
            weights,
            f"{layer}/output/LayerNorm",
        )
        outputs.append(x)
    return outputs


def encode(weights, config, batch):
    """The same of [B, S] ids: list of [B, S, H], and the pooled output."""
    rows = [
        encode_sequence(weights, config, *row)
        for row in zip(
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            strict=True,
        )
    ]
    outputs = [np.stack(layer) for layer in zip(*rows, strict=True)]
    first_token = outputs[-1][:, 0]
    return outputs, np.tanh(dense(first_token, weights, "bert/pooler/dense"))
