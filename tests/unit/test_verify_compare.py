"""When a running object counts as what was generated."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.verify.compare import mismatches


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": 1}, {"a": 1, "added": 2}),
        ({"role": "<computed>", "password": "<secret>"}, {"role": "node-role"}),
        ({"podSelector": {}}, {}),
        ({"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}}, {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "0"}, {"name": "A", "value": "1"}]}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "0"}, {"name": "A", "value": "1"}]}),
        ({"ref": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"ref": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}),
    ],
)
def test_what_the_api_server_adds_is_no_difference(expected: Any, found: Any) -> None:
    """Defaults, additions of webhooks, other spellings of a quantity, and values that only `pulumi up` knows."""
    assert mismatches(expected, found) == []


@pytest.mark.parametrize(
    ("expected", "found", "sentence"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, "spec.a is 2 instead of 1"),
        ({"spec": {"a": 1}}, {}, "spec is missing"),
        ({"args": ["--x=1", "--y"]}, {"args": ["--x=2", "--y"]}, "args lacks --x=1 and has --x=2"),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, "args is in another order"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, "env[A] is missing"),
        ({"env": [{"name": "A", "value": "1.0"}]}, {"env": [{"name": "A", "value": "1"}]}, "env[A].value is 1 instead of 1.0"),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, "limits.cpu is 1 instead of 2"),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "much"}}, "limits.cpu is much instead of 2"),
        ({"ingress": [{"from": [1]}]}, {"ingress": [{"from": [1]}, {}]}, "ingress has {}"),
        ({"ingress": [{"from": ["a"]}]}, {"ingress": [{}]}, "ingress[0].from lacks a"),
    ],
)
def test_a_difference_is_said_with_its_place(expected: Any, found: Any, sentence: str) -> None:
    """What lacks, contradicts or opens a closed list is named by its path with both values."""
    assert mismatches(expected, found) == [sentence]


def test_pods_may_have_more_tolerations() -> None:
    """The API server adds tolerations to every pod, which are not named; what was generated has to be among them."""
    mine = {"key": "role", "operator": "Equal", "value": "decode"}
    theirs = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    assert mismatches({"tolerations": [mine]}, {"tolerations": [theirs, mine]}, more=True) == []
    assert mismatches({"tolerations": [mine]}, {"tolerations": [theirs, mine]}) != []
    (text,) = mismatches({"tolerations": [mine]}, {"tolerations": [theirs]}, more=True)
    assert text.startswith('tolerations lacks {"key":"role"')
