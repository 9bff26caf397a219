"""How long an engine may take from container start to its first answer."""

from __future__ import annotations

import math

from ..catalog import Model

BASE_SECONDS = 600
"""Image pull, CUDA graphs and compilation; vLLM's own default for the engine is 600 s (VLLM_ENGINE_READY_TIMEOUT_S)."""
DOWNLOAD_GB_PER_SECOND = 0.15
"""Slow end of a Hugging Face download: 700 GB in about 80 minutes (public reports give 10 to 60 minutes)."""
SAFETY = 1.5


def startup_budget_seconds(facts: Model) -> int:
    """Seconds after which a start counts as failed: 1.5 x (600 s + checkpoint at 0.15 GB/s), in whole minutes."""
    return math.ceil(SAFETY * (BASE_SECONDS + facts.checkpoint_gb / DOWNLOAD_GB_PER_SECOND) / 60) * 60
