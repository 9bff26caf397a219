from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from disagg_serving.catalog import Catalog
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.manifests.bundle import build_all, charts, images
from disagg_serving.manifests.observability import panels
from disagg_serving.planning.observability import VERSIONED, exposed, list_ids, metric_names
from disagg_serving.planning.shapes import Layout, Served
from disagg_serving.spec import EnvironmentSpec
from factories import ROOT, aggregated, check, environment, existing_cluster, layout, model, role
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.prometheus import Dataquery
from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector, parse, walk
from watched import ALL, ENVIRONMENTS, OLD, dashboards, expressions, groups, objects, pair, rules, watched

TARGET_LABELS = {"namespace", "pod", "container", "job", "instance", "model", "role"}
"""What scraping adds: the operator's own, and the two of our PodMonitors."""
MADE = {"group", "le"}
"""Labels that a query makes, or that belong to every histogram."""


def nodes(expression: str) -> list[Expr]:
    """Every node of an expression, as a PromQL parser sees it."""
    found: list[Expr] = []
    walk(parse(expression), found.append)
    return found


def labels_known(served: Served, spec: EnvironmentSpec) -> Mapping[str, set[str]]:
    """Labels that each series of a model's parts may carry."""
    lists = [served.metric_lists[i] for i, _ in list_ids(served, spec)]
    return {series: {*m.labels, *TARGET_LABELS} for known in lists for m in known.metrics for series in m.series}


def of_namespace(wanted: Layout, namespace: str) -> Served:
    """The model of a namespace."""
    (served,) = [s for s in wanted.served if s.spec.kubernetes_namespace == namespace]
    return served


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_query_reads_only_metrics_that_its_release_exposes(name: str) -> None:
    """A panel or alert over a metric that an engine or router does not have would stay empty, and nobody would notice."""
    wanted = watched(name)
    asked = list(expressions(wanted))
    assert len(asked) > 25
    for namespace, place, expression in asked:
        served = of_namespace(wanted, namespace)
        names = {n.name for n in nodes(expression) if isinstance(n, VectorSelector)}
        assert names <= exposed(served, wanted.spec), place
        assert names == metric_names(expression), f"{place}: our own reading differs from the parser's"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_query_selects_and_groups_by_labels_that_are_there(name: str) -> None:
    """A label that the metric does not carry selects nothing, or puts everything into one line."""
    wanted = watched(name)
    for namespace, place, expression in expressions(wanted):
        known = labels_known(of_namespace(wanted, namespace), wanted.spec)
        seen: set[str] = set(MADE)
        for node in nodes(expression):
            if isinstance(node, VectorSelector):
                assert node.name is not None
                seen |= known[node.name]
                assert {m.name for m in node.matchers.matchers} <= known[node.name], place
        for node in nodes(expression):
            if isinstance(node, AggregateExpr) and node.modifier is not None:
                assert set(node.modifier.labels) <= seen, place
            if isinstance(node, BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
                assert set(node.modifier.matching.labels) <= seen, place


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_alerts_and_panels_speak_of_labels_that_their_queries_keep(name: str) -> None:
    """A text with a label that the query has summed away shows an empty place."""
    wanted = watched(name)
    texts = [(r["expr"], r["annotations"]["summary"] + r["annotations"]["description"]) for r in rules(wanted)]
    for dashboard in dashboards(wanted).values():
        texts += [(t["expr"], t["legendFormat"]) for p in dashboard["panels"] for t in p.get("targets", [])]
    assert any("{{" in text for _, text in texts)
    for expression, text in texts:
        kept = {
            label
            for n in nodes(expression.replace("$__rate_interval", "5m"))
            if isinstance(n, AggregateExpr) and n.modifier
            for label in n.modifier.labels
        }
        assert set(re.findall(r"\{\{ ?(?:\$labels\.)?([A-Za-z_]+) ?\}\}", text)) - {"value"} <= kept, (expression, text)


@pytest.mark.parametrize("engine", [None, OLD])
def test_what_an_engine_lacks_is_left_out_and_said(engine: str | None) -> None:
    """The older engine's dashboards and alerts come without the two newer metrics, and plan and dashboard say which."""
    data = environment(pair(**({"engine": engine} if engine else {})), observability=ALL)
    wanted, said = layout(data), [f for f in check(data).findings if f.id == "observability-left-out"]
    used = {name for _, _, expression in expressions(wanted) for name in metric_names(expression)}
    alerts = {r["alert"] for r in rules(wanted)}
    titles = {p["title"] for d in dashboards(wanted).values() for p in d["panels"]}
    notes = [p["options"]["content"] for d in dashboards(wanted).values() for p in d["panels"] if p["type"] == "text"]
    if engine is None:
        assert set(VERSIONED) <= used
        assert (said, notes) == ([], [])
        assert "KvReadAfterExpiry" in alerts
        assert "Loads by stage" in titles
    else:
        assert not set(VERSIONED) & used
        assert [v for f in said for v in VERSIONED if v in f.message] == sorted(VERSIONED)
        assert "KvReadAfterExpiry" not in alerts
        assert notes == ["Left out, because this engine or router has no such metrics: Loads by stage."]


def test_the_table_of_newer_metrics_is_complete() -> None:
    """Whatever the listed engines do not share and queries use is in the table from which the plan speaks."""
    new, old = (layout(environment(pair(engine=e), observability=ALL)) for e in ("vllm-0.33.0-efa", OLD))
    used = {name for _, _, expression in expressions(new) for name in metric_names(expression)}
    assert {n for n in used if n not in exposed(old.served[0], old.spec)} == set(VERSIONED)


@pytest.mark.parametrize("engine", Catalog().engines)
def test_every_engine_of_the_catalogue_has_a_list(engine: str) -> None:
    """Dashboards can be asked for with each engine image that the project ships."""
    catalog = Catalog()
    known = catalog.metrics[f"vllm-{catalog.engines[engine].version}"]
    names = [m.name for m in known.metrics]
    assert len(names) == len(set(names)) > 40


@pytest.mark.parametrize("list_id", Catalog().metrics)
def test_lists_are_dated_and_distinct(list_id: str) -> None:
    """A list says where it was read; no name stands in it twice; counters carry the suffix under which they are exposed."""
    known = Catalog().metrics[list_id]
    names = [m.name for m in known.metrics]
    assert len(names) == len(set(names))
    assert known.version in list_id
    if not list_id.startswith(("envoy", "dcgm")):  # whose names have no such convention
        assert [m.name for m in known.metrics if (m.type == "counter") != m.name.endswith("_total") and m.type != "histogram"] == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_dashboards_load_in_grafanas_own_models(name: str) -> None:
    """Grafana's published models read each dashboard and write it back with every key, so none is unknown to Grafana or misspelt."""
    register_default_plugins()
    found = dashboards(watched(name))
    assert found
    for text in found.values():
        read = Dashboard.from_json(text)
        again = json.loads(JSONEncoder().encode(read))
        assert missing(text, again) == []
        targets = [t for p in read.panels or [] for t in getattr(p, "targets", None) or []]
        assert targets
        assert all(isinstance(t, Dataquery) for t in targets)


def test_a_misspelt_key_does_not_load() -> None:
    """The comparison above can fail."""
    register_default_plugins()
    (text, *_) = dashboards(watched("groups")).values()
    text["panels"][1]["fieldConfig"]["defaults"]["unitt"] = "s"
    assert missing(text, json.loads(JSONEncoder().encode(Dashboard.from_json(text)))) == [".panels[1].fieldConfig.defaults.unitt"]


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Places of `wanted` that `found` has not, or has otherwise."""
    if isinstance(wanted, dict):
        return [
            p for k, v in wanted.items() for p in (missing(v, found[k], f"{path}.{k}") if isinstance(found, dict) and k in found else [f"{path}.{k}"])
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [p for i, (a, b) in enumerate(zip(wanted, found, strict=True)) for p in missing(a, b, f"{path}[{i}]")]
    return [] if wanted == found else [path]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_panels_lie_side_by_side(name: str) -> None:
    """No panel covers another or leaves the grid, and each has a number of its own."""
    for dashboard in dashboards(watched(name)).values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            assert not cells & taken, panel["title"]
            assert max(x for x, _ in cells) < panels.COLUMNS
            taken |= cells
        numbers = [p["id"] for p in dashboard["panels"]]
        assert len(numbers) == len(set(numbers))


def test_capacity_shows_the_plans_figures() -> None:
    """Each role's tokens, requests, budget and blocks stand beside what runs, as the plan has them."""
    wanted = watched("prefill and decode")
    panels_by_row: dict[str, list[Any]] = {}
    for panel in dashboards(wanted)["m-capacity"]["panels"]:
        if panel["type"] == "row":
            row = panels_by_row.setdefault(panel["title"], [])
        else:
            row.append(panel)
    for group in wanted.groups:
        plan = capacity_of(group)
        assert plan is not None
        shown = {t["expr"] for p in panels_by_row[f"Memory: {group.role}"] for t in p["targets"]}
        for figure in (plan.kv_tokens.mid, plan.kv_tokens.low, plan.kv_tokens.high, round(plan.max_concurrency.mid, 1), round(plan.budget_gib, 2)):
            assert any(re.fullmatch(rf"vector\({re.escape(f'{figure:g}')}\)", e) for e in shown), (figure, shown)
        (blocks,) = [p for p in panels_by_row[f"Memory: {group.role}"] if p["type"] == "table"]
        assert f"{plan.kv_tokens.mid / 128:,.0f} blocks of 128" in blocks["description"]
    assert {t["expr"] for p in panels_by_row["Traffic"] for t in p["targets"]} >= {"vector(2)", "vector(8000)", "vector(1000)"}


def test_a_scaled_role_is_shown_between_its_bounds() -> None:
    """The number of engines of a scaled role is right anywhere between least and most; a fixed one has one line."""
    panels = [p for b in dashboards(watched("scaled, with a candidate")).values() for p in b["panels"] if p["title"] == "Engines that answer"]
    (lines,) = [{t["legendFormat"]: t["expr"] for t in p["targets"]} for p in panels]
    planned = {name: expr for name, expr in lines.items() if expr.startswith("vector")}
    assert planned == {"prefill, planned": "vector(2)", "decode, at least": "vector(3)", "decode, at most": "vector(7)"}


def test_half_a_group_of_a_candidate_is_told() -> None:
    """Half a group holds GPUs and serves nothing, whether requests are meant for it or not; other alerts are about what serves."""
    own = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef1"], "nodes": 2}
    following = {"generation": "b", "server": role(tensorParallel=8, pipelineParallel=2, capacity=own)}
    wanted = layout(environment(groups(candidate=following), observability=ALL))
    about = [r["alert"] for r in rules(wanted) if "big-b" in r["expr"]]
    assert about == ["GroupHalfScheduled"]
    assert len([r for r in rules(wanted) if r["alert"] == "GroupHalfScheduled"]) == 2


def test_nothing_is_made_unasked() -> None:
    """Without the block, or with an empty one, no object of this kind is rendered: the operator's kinds may not be there."""
    for data in (environment(model()), environment(model(), observability={})):
        assert {o["kind"] for o in build_all(layout(data))} & {"PodMonitor", "PrometheusRule"} == set()
        assert dashboards(layout(data)) == {}
        assert not any("dcgm" in text for text in (*images(layout(data)), *charts(layout(data))))


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ({"podMonitors": True}, {"PodMonitor"}),
        ({"podMonitors": True, "alerts": True}, {"PodMonitor", "PrometheusRule"}),
        ({"dcgmExporter": "chart"}, set()),
    ],
)
def test_parts_come_one_by_one(asked: dict[str, Any], kinds: set[str]) -> None:
    """Each part is made where it is asked for and brings no other."""
    wanted = layout(environment(model(), observability=asked))
    assert {o["kind"] for o in build_all(wanted)} & {"PodMonitor", "PrometheusRule"} == kinds
    assert dashboards(wanted) == {}


def test_aggregated_models_have_no_transfers() -> None:
    """Without prefill and decode there is no dashboard and no alert about KV transfer."""
    wanted = watched("groups")
    assert set(dashboards(wanted)) == {"big-serving", "big-capacity"}
    assert {r["alert"] for r in rules(wanted)} & {"KvTransfersFailing", "PrefillUnused", "DecodeOnlyTraffic"} == set()
    assert "GroupHalfScheduled" in {r["alert"] for r in rules(wanted)}


def test_names_of_long_models_fit_grafana() -> None:
    """An address of a dashboard has at most 40 characters, and two long names that begin alike keep two."""
    long = "a-model-with-a-name-of-forty-characters"
    made = [dashboards(layout(environment(aggregated(name=f"{long}{end}"), observability=ALL))) for end in ("x", "y")]
    addresses = [d["uid"] for found in made for d in found.values()]
    assert len(addresses) == len(set(addresses)) == 4
    assert max(map(len, addresses)) <= 40


def test_labels_and_folder_are_written() -> None:
    """What the operator and Grafana select by stands on the objects."""
    asked = {**ALL, "dashboardLabels": {"dashboards": "yes"}, "dashboardFolder": "Serving"}
    wanted = layout(environment(model(), observability=asked))
    for o in (*objects(wanted, "PodMonitor"), *objects(wanted, "PrometheusRule")):
        assert o["metadata"]["labels"]["release"] == "stack"
    (config, *_) = [o for o in objects(wanted, "ConfigMap") if "dashboards" in o["metadata"]["labels"]]
    assert config["metadata"]["annotations"] == {"grafana_folder": "Serving"}


def test_the_node_alert_follows_the_pools() -> None:
    """The node's end is that of its pool, and where no pools are made nobody knows one."""
    data = environment(groups(), observability=ALL, nodePools={"expireAfterHours": 20, "terminationGraceHours": 2})
    (found,) = [r for r in rules(layout(data)) if r["alert"] == "NodeExpiresSoon"]
    assert f"+ {20 * 3600 - 600} - time()) < {10 * 3600} " in found["expr"]
    assert not [r for r in rules(watched("without Auto Mode")) if r["alert"] == "NodeExpiresSoon"]


def test_every_alert_is_explained() -> None:
    """Whoever an alert wakes finds in the documentation what it means and what to do, and nothing there is about alerts that are gone."""
    rows = re.findall(r"^\| `([A-Za-z]+)` \| (.+) \| (.+) \|$", (ROOT / "docs/observability.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _, _ in rows} == {r["alert"] for name in ENVIRONMENTS for r in rules(watched(name))}
    assert min(len(text) for _, *texts in rows for text in texts) > 20


def test_the_exporter_is_called_untried_only_on_auto_mode() -> None:
    """On nodes that somebody else makes, what was not tried is not Auto Mode; the rights are named everywhere."""
    for auto, words in ((True, True), (False, False)):
        one = model(prefill=role(nodeSelector={"pool": "p"}), decode=role(nodeSelector={"pool": "d"})) if not auto else model()
        data = {**existing_cluster(one, autoMode=auto), "observability": {"dcgmExporter": "chart"}}
        (found,) = [f for f in check(data).findings if f.id == "observability-dcgm"]
        assert ("Auto Mode" in found.message) is words
        assert "SYS_ADMIN" in found.message
