"""Vision towers: their weights, and what the dummy run of start-up gives the encoder. Bytes of one GPU."""

from __future__ import annotations

from ...catalog.entries import Vision
from .engine_shape import EngineShape

BF16 = 2
CHANNELS = 3
LAYER_STATES, HEAD_STATES = 2, 7
"""Hidden states of an encoder's layer that live at the same time: always, and in its attention (queries, keys and values, twice, and output)."""


def tower(shape: EngineShape) -> Vision | None:
    """The vision tower that the engine loads."""
    return None if shape.text_only else shape.facts.vision


def tower_weights(shape: EngineShape) -> float:
    """The tower in bf16: tensor parallelism cuts its layers, and each GPU keeps patch embedding and projector (vllm: kimi_k25_vit.py)."""
    vision = tower(shape)
    if vision is None:
        return 0
    whole = vision.patch_size**2 * CHANNELS * vision.hidden_size + vision.positions * vision.hidden_size + vision.projector_millions * 1e6
    layers = vision.layers * (4 * vision.hidden_size**2 + (3 if vision.gated else 2) * vision.hidden_size * vision.intermediate_size)
    return (whole + layers / _cut(shape, vision)) * BF16


def encoder_cache(shape: EngineShape) -> float:
    """Outputs of the encoder for its largest batch, which wait through the dummy run of the language model (vllm: profile_run)."""
    vision = tower(shape)
    return _budget(shape, vision) * shape.facts.hidden_size * BF16 if vision else 0


def encoder_peak(shape: EngineShape) -> float:
    """What the encoder takes for that batch: pixels, and the states of a layer, in attention or in its MLP."""
    vision = tower(shape)
    if vision is None:
        return 0
    patches = _budget(shape, vision) * vision.patches_per_token
    layer = max(HEAD_STATES * vision.hidden_size, 2 * vision.intermediate_size) / _cut(shape, vision)
    pixels = vision.patch_size**2 * CHANNELS * vision.frames
    return patches * (pixels + LAYER_STATES * vision.hidden_size + layer) * BF16 + encoder_cache(shape)


def _cut(shape: EngineShape, vision: Vision) -> int:
    """GPUs that share a layer of the encoder."""
    return 1 if shape.whole_encoder or vision.attention_heads % shape.tensor_parallel else shape.tensor_parallel


def _budget(shape: EngineShape, vision: Vision) -> int:
    """Tokens of the encoder's largest batch: a whole item has room (vllm: MultiModalBudget)."""
    return max(shape.batched_tokens, vision.item_tokens)
