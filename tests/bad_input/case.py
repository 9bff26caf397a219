"""What a case of bad input is, and the environments that cases begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from factories import aggregated, environment, model, role

LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
OLD_ENGINE = {
    "id": "old",
    "engine": "vllm",
    "version": "0.1.0",
    "image": "vllm:old",
    "libfabric": True,
    "tagVerified": True,
    "stalePeerFix": True,
    "defaultGpuMemoryUtilization": 0.9,
    "source": ["here"],
    "checked": "2026-11-29",
}
PREFILL = "models[0].prefill"
DECODE = "models[0].decode"
SERVER = "models[0].server"


@dataclass(frozen=True)
class Case:
    """Bad input, and what the one line about it has to say: place, value, what is allowed and what to do."""

    name: str
    data: Any
    path: str | None = None
    value: str = ""
    allowed: str = ""
    fix: str = ""
    says: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The YAML file."""
        return self.data if isinstance(self.data, str) else yaml.safe_dump(self.data, sort_keys=False)


def one(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has prefill and decode."""
    return environment(model(**overrides))


def decode(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has this decode."""
    return one(decode=role(**overrides))


def server(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has this server."""
    return environment(aggregated(server=role(**overrides)))


def network(**overrides: Any) -> dict[str, Any]:
    """An environment with this network."""
    return environment(network={"zones": ["us-east-1a", "us-east-1b"], **overrides})


def stack(data: Any, **config: Any) -> dict[str, Any]:
    """A stack file with this environment."""
    return {"config": {"aws:region": "us-east-1", "disagg-serving:environment": data, **config}}


def on_disk(**overrides: Any) -> dict[str, Any]:
    """An environment whose model is the config.json beside it."""
    return environment(aggregated(**{"model": "./config.json", "repository": "a/b", **overrides}))
