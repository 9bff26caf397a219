"""A calibration record: what a real start of the engine said about its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ...document.capacity import Bars
from ...errors import Finding, Level, SpecError
from ...phrases import say

TOKENS_OFF, HYBRID_TOKENS_OFF = 0.02, 0.06
"""How far a log's tokens may be from those of the formula; models with windows are rounded by more."""
WEIGHTS_OFF = 0.1
"""How far outside of their bars a log's weights may be."""


@dataclass(frozen=True)
class Calibration:
    """What one start said, per GPU in GiB: weights of the fullest rank, KV cache of the emptiest, and the tokens of one engine.

    With it the fit is exact instead of estimated. `tokens`, `max_model_len` (tokens), `max_concurrency`, `gpu_memory_utilization` and
    `engine_version` are None where nobody noted them; without a utilization the record counts as taken at that of the engine it is used for.
    Raises SpecError for amounts that are not above 0.
    """

    weights_gib: float
    kv_gib: float
    tokens: int | None = None
    max_model_len: int | None = None
    max_concurrency: float | None = None
    gpu_memory_utilization: float | None = None
    engine_version: str | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that no engine prints."""
        amounts = {"weightsGiB": self.weights_gib, "kvCacheGiB": self.kv_gib, "kvCacheTokens": self.tokens}
        wrong = [name for name, value in amounts.items() if value is not None and not (math.isfinite(value) and value > 0)]
        if wrong:
            raise SpecError([log_finding(name, "is no amount of a start-up log", amounts[name], "above 0") for name in wrong])


class Expected(NamedTuple):
    """What an engine's shape says about its log: GiB of a GPU's budget, weights with their bars, and tokens of the logged KV cache by stage."""

    budget_gib: float
    weights_gib: Bars
    tokens: tuple[int, ...]
    hybrid: bool = False


def over_budget(record: Calibration, budget_gib: float) -> list[tuple[str, str]]:
    """Whether a record is of more memory than vLLM may use of a GPU, GiB."""
    together = record.weights_gib + record.kv_gib
    if together <= budget_gib:
        return []
    return [
        ("kvCacheGiB", say("and {weightsGiB} are {:.1f} GiB together, more than the {:.1f} GiB that vLLM may use of a GPU", together, budget_gib))
    ]


def contradictions(record: Calibration, expected: Expected) -> list[tuple[str, str]]:
    """Where a record cannot be of the engine that it is used for: the field as in the stack file, and what is wrong with it."""
    found, weights = over_budget(record, expected.budget_gib), expected.weights_gib
    off = HYBRID_TOKENS_OFF if expected.hybrid else TOKENS_OFF
    if record.tokens is not None and all(abs(record.tokens - n) > off * n for n in expected.tokens):
        likely = min(expected.tokens, key=lambda n: abs(n - (record.tokens or 0)))
        found.append(("kvCacheTokens", f"are not what {record.kv_gib:g} GiB hold, {likely:,} tokens, within {off:.0%}"))
    if not weights.low * (1 - WEIGHTS_OFF) <= record.weights_gib <= weights.high * (1 + WEIGHTS_OFF):
        found.append(("weightsGiB", f"is more than {WEIGHTS_OFF:.0%} outside of the {weights.low:.1f} to {weights.high:.1f} GiB of this engine"))
    return found


def log_finding(path: str, message: str, value: object, allowed: str, fix: str = "") -> Finding:
    """What is wrong with the log that memory is calibrated with."""
    return Finding("calibration-log", Level.ERROR, path, message, value, allowed, fix)
