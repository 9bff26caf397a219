"""Milliseconds of engine steps, from measured kernels: steps.yaml and the packed tables of steps/, both written by `make steps`."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from math import log2
from typing import Any

from ..yaml_io import read_yaml
from .entries import Model
from .loader import PACKAGE_DIR

FOLDER = PACKAGE_DIR / "steps"
SCALE = 256
"""Steps of the logarithm (base 2) in which times are kept: a value is off by 0.14 % at the most."""
LEAST_MS = 2.0**-8
"""What stands for nothing, which has no logarithm."""
SHAPE = (
    "layers", "hidden_size", "attention_heads", "kv_heads", "head_dim", "intermediate_size", "vocab_size", "mla", "indexer", "moe", "sliding_window",
    "linear_attention", "weight_dtype",
)  # fmt: skip
"""What of a model its step times depend on."""
_FORM = re.compile(r"tp(\d+)(?:dp(\d+))?(ep)?")


@dataclass(frozen=True, order=True)
class Form:
    """How one engine is cut: tensor and data parallelism, and whether its GPUs hold whole experts."""

    tensor_parallel: int
    data_parallel: int = 1
    expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of one engine."""
        return self.tensor_parallel * self.data_parallel

    @property
    def key(self) -> str:
        """Its name in the tables: `tp4`, `tp1dp8ep`."""
        return f"tp{self.tensor_parallel}" + f"dp{self.data_parallel}" * (self.data_parallel > 1) + "ep" * self.expert_parallel

    def __str__(self) -> str:
        words = [f"TP{self.tensor_parallel}", *([f"DP{self.data_parallel}"] if self.data_parallel > 1 else [])]
        return " ".join([*words, *(["EP"] if self.expert_parallel else [])])


def form_of(key: str) -> Form:
    """The form of a name in the tables. Raises ValueError for another text."""
    if not (found := _FORM.fullmatch(key)):
        raise ValueError(f"{key} is no form of engine")
    return Form(int(found[1]), int(found[2] or 1), bool(found[3]))


@dataclass(frozen=True)
class StepTable:
    """Milliseconds of one form of engine on one GPU; batch and context are those of one data-parallel rank.

    `prefill` is by length; `decode` by batch and context, with the share of `attention` in it at the first context by batch; a mixed step is
    `shared`, by chunk and batch, and the attention of its `prompt`, by chunk and prompt, and that of decode. Attention of 0 is inside of the rest.
    """

    prefill: Sequence[float]
    decode: Sequence[Sequence[float]]
    attention: Sequence[float]
    shared: Sequence[Sequence[float]]
    prompt: Sequence[Sequence[float]]


@dataclass(frozen=True)
class StepError:
    """Measured by forecast time per token over public runs of a model on a GPU: tenth percentile, median and ninetieth, and how many runs."""

    low: float
    mid: float
    high: float
    rows: int


@dataclass(frozen=True)
class StepData:
    """What is known of the tables as a whole."""

    library: str
    engine: str
    made: str
    notice: str
    axes: Mapping[str, Sequence[int]]
    refused: Mapping[str, Mapping[str, str]] = field(repr=False)
    """By model and table, `h100/tp4`: which gate refused it, and why."""
    missing: Mapping[str, Mapping[str, str]] = field(repr=False)
    """By model and table: why the library has no times."""
    errors: Mapping[str, Mapping[str, StepError]] = field(repr=False)
    """By model, or `dense` and `experts` for the class, and GPU."""
    configs: Mapping[str, str] = field(repr=False)
    """By model: the configuration that the times were calculated for."""


@cache
def step_data() -> StepData:
    """What steps.yaml says."""
    data: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "steps.yaml")
    models: Mapping[str, Any] = data["models"]
    errors = {model: {gpu: StepError(*numbers) for gpu, numbers in found.items()} for model, found in (data.get("errors") or {}).items()}
    return StepData(
        data["library"],
        data["engine"],
        str(data["made"]),
        data["notice"],
        data["axes"],
        {model: one.get("refused") or {} for model, one in models.items()},
        {model: one.get("missing") or {} for model, one in models.items()},
        errors,
        {model: one["config"] for model, one in models.items()},
    )


@cache
def step_tables(model: str) -> Mapping[tuple[str, Form], StepTable]:
    """The tables of a model of the catalogue, by GPU and form; none where no table passed the gates."""
    file = FOLDER / f"{model}.json.xz"
    if not file.is_file():
        return {}
    packed: Mapping[str, Any] = json.loads(lzma.decompress(file.read_bytes()))
    keys = ((*key.split("/"), table) for key, table in packed.items())
    return {(gpu, form_of(form)): unpack(table) for gpu, form, table in keys}


def table_for(facts: Model, models: Mapping[str, Model]) -> str:
    """The model of the catalogue whose step times are those of these facts: one of the same shape and precision; empty where there is none."""
    return next((name for name in step_data().configs if name in models and _shape(models[name]) == _shape(facts)), "")


def _shape(facts: Model) -> list[Any]:
    return [getattr(facts, name) for name in SHAPE]


def pack(table: Mapping[str, Any]) -> list[Any]:
    """A table of milliseconds as whole numbers: steps of the logarithm, each as the difference from the one before."""
    return [_packed(table[name]) for name in StepTable.__dataclass_fields__]


def unpack(packed: Sequence[Any]) -> StepTable:
    """The table of `pack`."""
    return StepTable(*(_unpacked(values) for values in packed))


def _packed(values: Sequence[Any]) -> list[Any]:
    if isinstance(values[0], Sequence):
        return [_packed(row) for row in values]
    steps = [round(SCALE * log2(max(v, LEAST_MS))) for v in values]
    return [steps[0], *(b - a for a, b in pairwise(steps))]


def _unpacked(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):
        return [_unpacked(row) for row in values]
    return [0.0 if v <= SCALE * -8 else 2.0 ** (v / SCALE) for v in accumulate(values)]
