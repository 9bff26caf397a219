"""What is known of model classes beside the numbers of a config.json: families.yaml."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

from ..yaml_io import read_yaml
from .loader import PACKAGE_DIR


class Family(NamedTuple):
    """One class. The fields are those of families.yaml, where each is explained; `name` is that of the language model inside."""

    name: str
    source: str
    attention: Literal["grouped", "latent", ""] = ""
    experts: Literal["required", "optional", ""] = ""
    expert_size: str = "moe_intermediate_size"
    dense_size: str = "intermediate_size"
    dense_layers: str = "first_k_dense_replace"
    expert_every: str = ""
    shared_size: str = ""
    visited: str = ""
    full_layers: str = ""
    chunked: str = ""
    indexer: bool = False
    block_index: str = ""
    gated_attention: bool = False
    linear: Literal["gdn", "kda", ""] = ""
    bf16_attention: bool = False
    drafts: str = "num_nextn_predict_layers"
    vision: str = ""
    unknown: str = ""


def family_of(architecture: str) -> Family | None:
    """The family of a class, of the language model inside where it has one; None for a class that is not known."""
    return families().get(architecture)


@cache
def families() -> dict[str, Family]:
    """All families by class."""
    data: dict[str, dict[str, Any]] = read_yaml(PACKAGE_DIR / "families.yaml")["families"]
    inner = {name: _family(name, facts) for name, facts in data.items() if "text" not in facts}
    outer = {name: _family(facts["text"], {**data[facts["text"]], **facts}) for name, facts in data.items() if "text" in facts}
    return inner | outer


def calculated() -> list[str]:
    """The classes whose memory is calculated, by name."""
    return sorted(name for name, family in families().items() if not family.unknown)


def _family(name: str, facts: dict[str, Any]) -> Family:
    fields = {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): value for key, value in facts.items() if key != "text"}
    return Family(name, **fields)
