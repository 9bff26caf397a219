"""What can be said without a measured rate: bounds, printed as bounds.

The constants are our choice, checked once against 1,097 measured points of one role on H100 and H200, which are in the wheel of
https://pypi.org/project/aiconfigurator-core/0.12.0/ (aiconfigurator_core/systems/silicon_sample.csv): the estimate of a decode step has a mean
error of 33 %, and 94 % are within a factor of 2. For prefill of models with experts the reached part of the peak is 6 to 24 % there, so nothing
useful can be said.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.entries import Gpu, Model
from .rates import BalanceError, figure

BAND = 2.0
"""Factor on either side of a roofline estimate."""
HBM_PART = 0.65
"""Part of the memory bandwidth that decode reaches."""
ALL_REDUCE_SECONDS = 10e-6
"""One all-reduce between GPUs of a node; a layer has two."""
STEP_SECONDS = 4e-3
"""Fixed part of a decode step."""
NO_PREDICTION = "no useful prediction"


@dataclass(frozen=True)
class Bound:
    """A range that physics leaves; `low` or `high` is None where there is no limit. Never a forecast."""

    what: str
    unit: str
    low: float | None
    high: float | None
    reason: str

    def __str__(self) -> str:
        if self.low is None and self.high is None:
            return f"{self.what}: {NO_PREDICTION} ({self.reason})"
        if self.low is None:
            return f"{self.what}: at most {figure(self.high)} {self.unit} (bound, not a prediction: {self.reason})"
        return f"{self.what}: {figure(self.low)} to {figure(self.high)} {self.unit} (bound, not a prediction: {self.reason})"


@dataclass(frozen=True)
class Step:
    """What one decode step reads on each GPU: bytes of the weights that it touches and of the KV of its whole batch."""

    layers: int
    tensor_parallel: int
    weight_bytes: float
    kv_bytes: float

    def __post_init__(self) -> None:
        if self.weight_bytes <= 0 or self.kv_bytes < 0 or self.layers < 1 or self.tensor_parallel < 1:
            raise BalanceError("weights, layers and tensor parallelism of a step must be above 0, and its KV not below")

    def seconds(self, gpu: Gpu) -> float:
        """The middle of the estimate."""
        reduces = 2 * self.layers * ALL_REDUCE_SECONDS if self.tensor_parallel > 1 else 0.0
        return (self.weight_bytes + self.kv_bytes) / (HBM_PART * gpu.hbm_tbps * 1e12) + reduces + STEP_SECONDS


def decode_tokens(gpu: Gpu, step: Step, batch: int, ranks: int = 1) -> Bound:
    """Answer tokens a second and GPU of an engine whose data-parallel ranks each write `batch` answers at once."""
    if batch < 1:
        raise BalanceError(f"a batch of {batch}: it must be at least 1")
    mid = batch / step.seconds(gpu) / step.tensor_parallel
    of_each = f" on each of {ranks} ranks" if ranks > 1 else ""
    return Bound("decode", "tokens/s/GPU", mid / BAND, mid * BAND, f"roofline at a batch of {batch}{of_each}, with a factor of {BAND:g} either way")


def prefill_tokens(model: Model, gpu: Gpu) -> Bound:
    """Prompt tokens a second and GPU: at most the peak of its arithmetic for dense models, nothing for models with experts."""
    what, unit = "prefill", "tokens/s/GPU"
    if model.moe is not None:
        return Bound(what, unit, None, None, "models with experts reach 6 to 24 % of the peak; measure the rate")
    if model.weight_dtype in {"mxfp4", "nvfp4"}:
        return Bound(what, unit, None, None, "the catalogue has no peak for FP4; measure the rate")
    peak = gpu.fp8_dense_tflops if model.weight_dtype == "fp8" else gpu.bf16_dense_tflops
    # embeddings are looked up, and logits are calculated for the last token only
    idle = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    most = peak * 1e12 / (2 * (model.parameters_b.active * 1e9 - idle))
    return Bound(what, unit, None, most, f"{peak:g} TFLOP/s and 2 operations a parameter and token, without attention")
