"""The rule `limits`: what plans and checks say about the limits of a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.corrections import corrected
from disagg_serving.errors import Finding, Level
from disagg_serving.forecast.sizing import Ask, Limits
from disagg_serving.rules.evaluation import evaluate
from disagg_serving.rules.proposal import Wish
from disagg_serving.rules.sized import answer

CATALOG = load_catalog()
SERVER = {"instanceType": "p5en.48xlarge", "replicas": 4, "tensorParallel": 4}


def environment(rate: float, model: str = "llama-3.3-70b-instruct-fp8", **changed: Any) -> dict[str, Any]:
    """One model with limits."""
    workload = {"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": rate, "ttftMs": 2000, "tpotMs": 50}
    served = {"name": "chat", "model": model, "maxModelLen": 32768, "workload": workload, "server": SERVER}
    return {"name": "test", "network": {"zones": ["us-east-1a", "us-east-1b"]}, "models": [served | changed]}


def told(data: dict[str, Any]) -> Finding | None:
    """What the rule says."""
    return next((f for f in evaluate(data, Path()).findings if f.id == "limits"), None)


def sized(model: str, rate: float, mode: Any = "any") -> dict[str, Any]:
    """What sizing proposes."""
    ask = Ask(
        model, CATALOG.models[model], model, 8000, 1000, rate, tuple(CATALOG.instances.values()), Limits(2000, 50), max_model_len=32768, mode=mode
    )  # fmt: skip
    wish = Wish(
        "chat", model, "us-east-1", ("us-east-1a", "us-east-1b"), requests_per_second=rate, ttft_ms=2000, tpot_ms=50, max_model_len=32768
    )  # fmt: skip
    return {"name": "test", **answer(ask, wish, CATALOG, Path(), 1).environment}


def test_kept_limits_are_said_with_their_ends() -> None:
    """A layout that keeps its limits is told so, with what it comes to, from fast to slow steps, and on how many runs that stands."""
    found = told(environment(3))
    assert found is not None
    assert found.level is Level.INFO
    assert "keeps its limits by forecast: 90 % of requests get their first token within" in found.message
    assert "20 measured runs" in found.message


@pytest.mark.parametrize(
    ("model", "rate", "mode"),
    [("llama-3.3-70b-instruct-fp8", 20, "any"), ("qwen3-32b", 12, "any"), ("deepseek-v3", 6, "disaggregated"), ("glm-5-fp8", 4, "any")],
)
def test_half_more_traffic_breaks_what_was_sized(model: str, rate: float, mode: str) -> None:
    """What was sized for a load keeps its limits; at one and a half of it the plan says that it no longer does, and each correction mends it."""
    data = sized(model, rate, mode)
    kept = told(data)
    assert kept is not None
    assert kept.level is Level.INFO
    data["models"][0]["workload"]["requestsPerSecond"] = 1.5 * rate
    broken = told(data)
    assert broken is not None
    assert broken.level is Level.WARNING
    assert "does not keep its limits" in broken.message
    assert broken.corrections
    for correction in broken.corrections:
        mended = told(corrected(data, correction))
        assert mended is not None
        assert mended.level is Level.INFO


def test_the_rate_that_is_allowed_is_kept() -> None:
    """The rate that a finding names is one at which the layout keeps its limits, and a tenth more is not."""
    broken = told(environment(20))
    assert broken is not None
    rate = float(broken.allowed.rpartition("at most ")[2].partition(" ")[0])
    kept, more = told(environment(rate * 0.99)), told(environment(rate * 1.1))
    assert kept is not None
    assert more is not None
    assert (kept.level, more.level) == (Level.INFO, Level.WARNING)


def test_without_limits_nothing_is_said() -> None:
    """Who sets no limit hears nothing of them."""
    data = environment(3)
    del data["models"][0]["workload"]["ttftMs"], data["models"][0]["workload"]["tpotMs"]
    assert told(data) is None


def test_what_has_no_step_times_is_not_judged() -> None:
    """A form without tables is named, and nothing is claimed about it."""
    found = told(environment(1, "glm-5-fp8", server={"instanceType": "p5.48xlarge", "replicas": 1, "tensorParallel": 8, "pipelineParallel": 2}))
    assert found is not None
    assert found.level is Level.INFO
    assert "cannot be forecast: an engine over several nodes" in found.message


def test_measured_rates_scale_the_forecast() -> None:
    """With own rates of half the forecast the same layout takes longer, and the plan says that the tables were scaled."""
    role = {"instanceType": "p5.48xlarge", "replicas": 4, "tensorParallel": 4}
    split: dict[str, Any] = {"server": None, "prefill": role, "decode": role}
    plain = told(environment(1, **split))
    rates = {"measuredRates": [{"inputTokens": 8000, "tokensPerSecondPerGPU": 3000}]}
    slow = told(environment(1, **{**split, "prefill": role | rates}))
    assert plain is not None
    assert slow is not None
    assert "scaled by measuredRates" in slow.message
    assert "scaled" not in plain.message
    assert float(slow.message.partition("token within ")[2].split()[0].replace(",", "")) > float(
        plain.message.partition("token within ")[2].split()[0].replace(",", "")
    )
