"""Flags and variables that prefill and decode must share: what NIXL compares, and what makes of one request the same tokens on both."""

from __future__ import annotations

from typing import NamedTuple

from ..spec import ModelSpec
from ..spec.serving import RoleName
from .extras import Extra, arguments_of, setting_of, variables_of

HASHED = frozenset({
    "vllm_version", "nixl_connector_version", "model", "dtype", "num_kv_heads", "head_size", "num_hidden_layers", "attn_backend_name",
    "cache_dtype", "is_hma_enabled", "cross_layers_blocks", "speculative_config", "transfer_mode",
})  # fmt: skip
"""The factors of NIXL's compatibility hash in vLLM 0.27.1 and 0.33.0 (compute_nixl_compatibility_hash of nixl/metadata.py). Fields of the model
set dtype, cache dtype, speculation and connector; the flags and variables below set the others."""


class Shared(NamedTuple):
    """What a setting decides that both roles must share. `surely` where one that stands on one role alone cannot be what the other does anyway."""

    decides: str
    surely: bool = False


_HASH, _HANDSHAKE, _TOKENS = "which NIXL's compatibility hash holds", "which NIXL compares at the handshake", "so decode takes KV of other tokens"
_SHAPE = Shared(f"the number and size of KV heads and layers, {_HASH}")
_STATES = Shared(f"the size of the model's states, {_HANDSHAKE}")
_PROMPT = Shared(f"the tokens of a prompt, {_TOKENS}")

SHARED_FLAGS = {
    "--attention-backend": Shared(f"the attention backend, {_HASH}"),
    "--attention-config": Shared(f"the attention backend, {_HASH}"),
    "--enable-hybrid-kv-cache-manager": Shared(f"whether the hybrid KV cache manager runs, {_HASH}", surely=True),
    "--hf-overrides": _SHAPE,
    "--hf-config-path": _SHAPE,
    "--config-format": _SHAPE,
    "--kv-cache-dtype-skip-layers": Shared(f"the bytes of each layer's blocks, {_HANDSHAKE}", surely=True),
    "--enable-sliding-window": Shared(f"the groups of KV blocks, {_HANDSHAKE}"),
    "--mamba-cache-dtype": _STATES,
    "--mamba-ssm-cache-dtype": _STATES,
    "--mamba-block-size": _STATES,
    "--quantization": Shared("the weights that KV is calculated with"),
    "--code-revision": Shared("the model's code"),
    "--tokenizer": _PROMPT,
    "--tokenizer-mode": _PROMPT,
    "--tokenizer-revision": _PROMPT,
    "--chat-template": _PROMPT,
    "--chat-template-content-format": _PROMPT,
    "--default-chat-template-kwargs": _PROMPT,
    "--mm-processor-kwargs": _PROMPT,
    "--lora-modules": Shared("the adapters that a request may name, of which the other role answers 404", surely=True),
    "--enable-lora": Shared("whether a request may name an adapter, which the other role then refuses"),
}
"""By setting (a switch and its negation are one)."""
SHARED_VARIABLES = {
    "VLLM_KV_CACHE_LAYOUT": Shared(f"the layout of KV, {_HANDSHAKE}"),
    "VLLM_MLA_DISABLE": Shared(f"the attention backend, {_HASH}"),
    "VLLM_ATTENTION_BACKEND": Shared(f"the attention backend, {_HASH}"),
}
_AS_BY_DEFAULT = {
    "--no-disable-hybrid-kv-cache-manager", "--enable-hybrid-kv-cache-manager", "--no-disable-sliding-window", "--enable-sliding-window",
    "--no-enable-lora", "--disable-lora",
}  # fmt: skip
"""Switches that say what vLLM does without them."""


def shared_settings(model: ModelSpec, role: RoleName) -> dict[str, list[Extra]]:
    """What a role says of settings that both roles must share, by flag or variable."""
    found: dict[str, list[Extra]] = {}
    for extra in arguments_of(model, role):
        if setting_of(extra.value) in SHARED_FLAGS and extra.value.replace("_", "-") not in _AS_BY_DEFAULT:
            found.setdefault(setting_of(extra.value), []).append(extra)
    return found | {name: [extra] for name, extra in variables_of(model, role).items() if name in SHARED_VARIABLES}
