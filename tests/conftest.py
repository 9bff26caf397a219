"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os

import pytest
from budgets import FUZZ, USUAL
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# the day by which prices are judged: output must not change while time passes
os.environ["SOURCE_DATE_EPOCH"] = "1795910400"

# the providers' modules are hundreds of thousands of objects: going through them as often as usual takes a quarter of the time of a recording
gc.set_threshold(100_000, 20, 50)

# Hypothesis also draws constants that it finds in the modules imported so far: then unrelated code, and the order of the tests, change what is drawn
NO_CONSTANTS = type(providers._local_constants)()
providers._get_local_constants = lambda: NO_CONSTANTS

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=USUAL)
# `make fuzz`: other examples in each run, many more of them, and the way to see a failing one again
settings.register_profile("fuzz", settings.get_profile("default"), derandomize=False, database=None, print_blob=True, max_examples=USUAL * FUZZ)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite-golden` makes golden tests write instead of compare."""
    parser.addoption("--rewrite-golden", action="store_true", default=False, help="rewrite the golden files")


@pytest.fixture
def rewrite_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are rewritten."""
    return bool(request.config.getoption("--rewrite-golden"))
