"""Pods of different size in one pool: what rule `mixed-pods` promises, against every way in which a scheduler may spread them."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.planning.placement import nodes_of, pack
from factories import aggregated, check, environment, layout, role
from hypothesis import given
from hypothesis import strategies as st

GPUS = 8
SIZES = st.sampled_from([1, 2, 4, 8])


def shared(large: int, larges: int, small: int, smalls: int, nodes: int | None) -> dict[str, Any]:
    """Two models in one pool that may have so many nodes."""
    bound = {} if nodes is None else {"capacity": {"nodes": nodes}}
    first = aggregated(name="large", server=role(tensorParallel=large, replicas=larges, **bound))
    return environment(first, aggregated(name="small", server=role(tensorParallel=small, replicas=smalls)))


def warned(data: dict[str, Any]) -> list[str]:
    """Messages of the rule; the environment must pass otherwise."""
    found = check(data).findings
    assert not [f for f in found if f.level == "error"]
    return [f.message for f in found if f.id == "mixed-pods"]


def test_half_node_pods_can_take_the_node_of_a_whole_node_pod() -> None:
    """The planned nodes are too few once small pods are spread; the line names the bound that is safe, and that bound passes."""
    (message,) = warned(shared(8, 2, 2, 2, None))
    assert "no place for pods of 8 GPUs" in message
    assert "at most 3 nodes" in message
    assert warned(shared(8, 2, 2, 2, 3))
    assert not warned(shared(8, 2, 2, 2, 4))


@given(data=st.data(), sizes=st.tuples(SIZES, SIZES), larges=st.integers(1, 4), smalls=st.integers(1, 6), spare=st.integers(0, 4))
def test_without_a_warning_no_spreading_strands_a_pod(data: st.DataObject, sizes: tuple[int, int], larges: int, smalls: int, spare: int) -> None:
    """However the small pods are placed first on nodes within the bound, every large pod still finds room unless the rule has warned."""
    small, large = sorted(sizes)
    nodes = -(-(large * larges + small * smalls) // GPUS) + spare
    environment = shared(large, larges, small, smalls, nodes)
    if any(f.level == "error" for f in check(environment).findings) or warned(environment):
        return
    free = [GPUS] * nodes
    for _ in range(smalls):
        i = data.draw(st.sampled_from([i for i, gpus in enumerate(free) if gpus >= small]))
        free[i] -= small
    assert sum(gpus // large for gpus in free) >= larges


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("replicas", [1, 2, 3, 7, 16, 33])
def test_alike_pods_are_counted_as_they_are_placed(size: int, replicas: int) -> None:
    """Rolling updates look at numbers of nodes alone; those are the nodes of the simulation."""
    (group,) = layout(
        environment(aggregated(model="llama-3.1-8b-instruct", maxModelLen=8192, server=role(tensorParallel=size, replicas=replicas)))
    ).groups
    assert nodes_of(group.size * group.replicas, group) == len(pack([group]))
