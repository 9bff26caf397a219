"""What is taken, warned about or shown where a stack file goes its own way."""

from __future__ import annotations

import pytest
from disagg_serving.errors import Level
from disagg_serving.forecast.capacities import capacities
from disagg_serving.manifests.engine import environment as variables
from disagg_serving.recording.plan import placement_of
from factories import aggregated, check, environment, layout, model, role

REASON = "the second reservation begins on Monday"


def test_pods_beyond_an_accepted_bound_stand_on_no_node() -> None:
    """Who accepts too few nodes sees which pods wait for the others, not nodes that nobody may start."""
    data = environment(aggregated(server=role(tensorParallel=8, replicas=3, capacity={"nodes": 2})), accept={"group-capacity": REASON})
    (pool,) = placement_of(layout(data))
    assert (len(pool.nodes), pool.unplaced) == (2, ["m-2"])


def test_the_level_of_nccl_s_log_can_be_set() -> None:
    """It is INFO, at which NCCL says which fabric it took, and another level replaces it in both roles."""
    given = layout(environment(model(extraEnv={"NCCL_DEBUG": "WARN"})))
    assert [[e["value"] for e in variables(g) if e["name"] == "NCCL_DEBUG"] for g in given.groups] == [["WARN"], ["WARN"]]
    assert [e["value"] for e in variables(layout(environment(model())).groups[0]) if e["name"] == "NCCL_DEBUG"] == ["INFO"]


def test_an_engine_over_nodes_without_gpu_direct_rdma_is_a_warning() -> None:
    """It runs, slowly; within a node, or with GPUDirect RDMA, there is nothing to say."""
    wide = role(instanceType="p5.4xlarge", tensorParallel=2)
    found = [f for f in check(environment(aggregated(maxModelLen=8192, server=wide))).findings if f.id == "gpu-direct-rdma"]
    assert [(f.level, f.path) for f in found] == [(Level.WARNING, "models[0].server.instanceType")]
    for other in (role(tensorParallel=8, pipelineParallel=2), role(instanceType="p5.4xlarge", tensorParallel=1)):
        assert not [f for f in check(environment(aggregated(maxModelLen=8192, server=other))).findings if f.id == "gpu-direct-rdma"]


@pytest.mark.parametrize(("memory", "level"), [(27, Level.WARNING), (21, Level.WARNING), (28, None)])
def test_shared_memory_counts_only_as_it_fills(memory: int, level: Level | None) -> None:
    """What is left beside the usual /dev/shm may be little; an error is what processes lack even while it is empty."""
    found = [f for f in check(environment(aggregated(server=role(memoryGiB=memory)))).findings if f.id == "host-memory"]
    assert [f.level for f in found if f.path.endswith("memoryGiB")] == ([level] if level else [])


def test_a_forecast_that_cannot_be_made_may_be_done_without() -> None:
    """With a reason, an engine of unknown KV size is rendered, and its memory is left out of the capacity."""
    data = environment(model(kvCacheDtype="fp8_ds_mla"), accept={"memory-unknown": "our own build of the engine reads it"})
    result = check(data)
    assert [f.level for f in result.findings if f.id == "memory-unknown"] == [Level.WARNING]
    assert capacities(result.require_layout()) == []
