"""Memory of an engine at preview: does a model fit its GPUs, and how many tokens and requests does its KV cache hold.

`capacity(EngineShape(...))` is the whole interface; the measured figures are in catalog/overheads.yaml with their sources, the formulas
follow vLLM's source, and `make accuracy` holds both against start-up logs. Pure: no network, no GPU, and no figure without low and high.
"""

from __future__ import annotations

from ...document.capacity import Bars, Fit
from .calibration import Calibration
from .capacity import Capacity, capacity
from .engine_shape import EngineShape, unknown_architecture
from .steps import Step

__all__ = [
    "Bars",
    "Calibration",
    "Capacity",
    "EngineShape",
    "Fit",
    "Step",
    "capacity",
    "unknown_architecture",
]
