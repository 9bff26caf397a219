"""What can be said without a measured rate: bounds, printed as bounds.

The constants are our choice, checked once against 1,097 measured points of one role on H100 and H200, which are in the wheel of
https://pypi.org/project/aiconfigurator-core/0.12.0/ (aiconfigurator_core/systems/silicon_sample.csv): the estimate of a decode step has a mean
error of 33 %, and 94 % are within a factor of 2. For prefill of models with experts the reached part of the peak is 6 to 24 % there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
EXPERTS_REACH = (0.06, 0.24)
"""Part of the arithmetic's peak that prefill of models with experts reaches."""
NO_PREDICTION = "no useful prediction"


class Bound(NamedTuple):
    """A range that physics and public runs leave; `low` or `high` is None where there is no limit. Never a forecast.

    `peak` is what no GPU passes, where `high` is only what is known to be reached; `of` names what `high` is.
    """

    what: str
    unit: str
    low: float | None
    high: float | None
    reason: str
    of: str = "bound"
    peak: float | None = None

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.limits} (bound, not a prediction: {self.reason})" if self.high else f"{self.what}: {NO_PREDICTION} ({self.reason})"
        )

    @property
    def limits(self) -> str:
        """The range with its unit."""
        return f"at most {figure(self.high)} {self.unit}" if self.low is None else f"{figure(self.low)} to {figure(self.high)} {self.unit}"

    @property
    def never_passed(self) -> float | None:
        """What no GPU passes."""
        return self.peak or self.high

    def with_drafts(self, tokens: int) -> Bound:
        """Of an engine whose steps write up to so many tokens of an answer."""
        if tokens == 1 or self.high is None:
            return self
        return self._replace(high=self.high * tokens, reason=f"{self.reason}, at the high end with all drafts accepted")

    def beside(self, needed: float) -> str:
        """The bound beside what is needed of it."""
        if not self.high:
            return f"{self.what}: needs {figure(needed)} {self.unit}, {NO_PREDICTION} ({self.reason})"
        part = f"{needed / self.high * 100:.0f} % of the {self.of}"
        return f"{self.what}: needs {figure(needed)}, {self.limits}: {part} (bound, not a prediction: {self.reason})"


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
    """Prompt tokens a second and GPU: at most the peak of its arithmetic, and for models with experts the part of it that public runs reach."""
    what, unit = "prefill", "tokens/s/GPU"
    if model.weight_dtype in {"mxfp4", "nvfp4"}:
        return Bound(what, unit, None, None, "the catalogue has no peak for FP4; measure the rate")
    tflops = gpu.fp8_dense_tflops if model.weight_dtype == "fp8" else gpu.bf16_dense_tflops
    # embeddings are looked up, and logits are calculated for the last token only
    idle = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    peak = tflops * 1e12 / (2 * (model.parameters_b.active * 1e9 - idle))
    arithmetic = f"{tflops:g} TFLOP/s and 2 operations a parameter and token, without attention"
    if model.moe is None:
        return Bound(what, unit, None, peak, arithmetic, "peak")
    low, high = EXPERTS_REACH
    reason = f"{low * 100:.0f} to {high * 100:.0f} % of the peak, {arithmetic}"
    return Bound(what, unit, peak * low, peak * high, reason, "most that public runs of models with experts reach", peak)
