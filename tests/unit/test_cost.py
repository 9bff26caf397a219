"""What the plan's cost holds, of which day and region its prices are, and what is said of old ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from disagg_serving.catalog.loader import PACKAGE_DIR
from disagg_serving.errors import Level
from disagg_serving.forecast.cost import cost_of
from disagg_serving.report.html import render_html
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text
from disagg_serving.rules.evaluation import evaluate
from factories import check, environment, existing_cluster, layout
from pages import own_nodes, plan_of


def test_auto_mode_takes_its_fee_in_an_adopted_cluster_too() -> None:
    """It is charged for every node that Auto Mode starts, and while its rate is unknown no total is whole; other nodes do not pay it."""
    for data in (environment(), existing_cluster()):
        cost = cost_of(layout(data))
        (fee,) = [line for line in cost.lines if line.item == "management of the nodes"]
        assert (fee.quantity, fee.per_hour, cost.complete) == (2, None, False)
        assert "not known" in fee.note
    own = cost_of(layout(own_nodes()))
    assert not [line for line in own.lines if line.item == "management of the nodes"]
    assert not own.complete


def test_the_age_of_shipped_prices_is_no_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a user can change is warned of; that this package's own prices grow old is said, and turns no pipeline red by the calendar."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1900000000")  # 2030
    shipped = [f for f in check(environment()).findings if f.id == "price-age"]
    assert {f.level for f in shipped} == {Level.INFO}
    assert any(
        "list price of p5.48xlarge, prefill-p5-48xlarge that is 1336 days old (2026-07-20)" in f.message and "--look-up" in f.fix for f in shipped
    )
    kind = PACKAGE_DIR / "instances/p5.48xlarge.yaml"
    (tmp_path / "mine/instances").mkdir(parents=True)
    (tmp_path / "mine/instances/p5.48xlarge.yaml").write_text(kind.read_text(encoding="utf-8"), encoding="utf-8")
    own = [f for f in evaluate(environment(catalogDirs=["mine"]), tmp_path).findings if f.id == "price-age"]
    assert {(f.level, f.path, f.value) for f in own} == {(Level.WARNING, "catalogDirs", None)}


def test_a_price_of_another_region_says_so() -> None:
    """In every format the price of a region that the environment is not in is told from its own."""
    at_home, away = plan_of(environment()), plan_of(environment(network={"zones": ["us-west-2a", "us-west-2b"]}))
    assert {line.other_region for line in at_home.cost.lines} == {False}
    assert {line.other_region for line in away.cost.lines if line.region} == {True}
    for plan, words in ((at_home, "2026-07-20 us-east-1"), (away, "2026-07-20, taken from us-east-1")):
        for text in (render_text([plan], color=False), render_markdown([plan]), render_html([plan])):
            assert words in text
