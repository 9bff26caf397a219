"""Every fault is shown at once, whatever else is wrong, and what is suggested is judged by the whole file."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.corrections import corrected
from disagg_serving.errors import Finding, Level
from disagg_serving.rules import Stage, rules
from disagg_serving.spec import ModelSpec, RoleSpec
from factories import aggregated, check, environment, model, role

BLOCKING = {r.id for r in rules() if r.blocks_layout}


def found(data: Any, rule: str) -> list[Finding]:
    """What one rule says."""
    return [f for f in check(data).findings if f.id == rule]


def test_only_rules_of_the_form_block_a_layout() -> None:
    """A layout waits for rules that run before there is one."""
    assert {r.stage for r in rules() if r.blocks_layout} == {Stage.FORM}


def test_what_rules_read_are_keys_of_models_and_roles() -> None:
    """A misspelt key would let a rule judge a default as if it stood in the file."""
    keys = {field.alias or name for kind in (ModelSpec, RoleSpec) for name, field in kind.model_fields.items()}
    assert {key for r in rules() for key in r.reads} <= keys


def test_an_error_of_form_does_not_hide_what_the_layout_shows() -> None:
    """A correction that makes an engine too large for its nodes is not suggested because the image is wrong as well."""
    engine = role(instanceType="p5.48xlarge", tensorParallel=8, pipelineParallel=2)
    data = environment(model(model="glm-5-fp8", engine="vllm-0.33.0", prefill=engine, decode=engine))
    assert found(data, "engine-libfabric")
    (stages, *_) = found(data, "nixl-pipeline-parallel")
    assert not any(set(c.values()) == {1} for c in stages.corrections), stages.sentence()


def test_faults_of_one_model_do_not_hide_those_of_another() -> None:
    """Every fault at once: memory of one model is checked beside a mistake in the form of another."""
    wrong = aggregated(name="m0", server=role(tensorParallel=3))
    large = aggregated(name="m1", model="glm-5-fp8", server=role(instanceType="p5.48xlarge", tensorParallel=8))
    said = {(f.id, f.path) for f in check(environment(wrong, large)).findings}
    assert {("tensor-parallel", "models[0].server.tensorParallel"), ("memory-fit", "models[1].server.tensorParallel")} <= said


def test_an_obvious_fault_is_corrected_beside_faults_of_the_layout() -> None:
    """What the layout shows is reported next to an error of form, whose fix does not have to mend it."""
    data = environment(aggregated(extraArgs=["-O3"], server=role(tensorParallel=4, memoryGiB=5000)))
    assert found(data, "extra-args")[0].corrections
    assert found(data, "pod-fits-node")
    cut = environment(aggregated(server=role(tensorParallel=3, memoryGiB=5000)))
    assert found(cut, "tensor-parallel")[0].corrections


def test_a_correction_leaves_no_other_error_of_form_where_another_one_does_not() -> None:
    """Of values that end a fault, one that gives the model a layout comes first."""
    data = environment(model(prefill=role(tensorParallel=3), decode=role(tensorParallel=3)))
    (fault, *_) = found(data, "tensor-parallel")
    assert fault.corrections
    for correction in fault.corrections:
        assert not any(f.id in BLOCKING and f.level is Level.ERROR for f in check(corrected(data, correction)).findings), correction


def test_a_private_endpoint_for_nobody_is_warned_of() -> None:
    """Without a public endpoint somebody besides the nodes has to be let in at the private one, or `up` stops at the first object in the cluster."""
    closed = {"publicAccess": False}
    (warning,) = found(environment(cluster={"endpoint": closed}), "api-endpoint")
    assert (warning.level, warning.path) == (Level.WARNING, "cluster.endpoint.privateAccessSecurityGroupIds")
    for opened in ({"privateAccessSecurityGroupIds": ["sg-0123456789abcdef0"]}, {"privateAccessCidrs": ["10.99.0.0/16"]}):
        assert not found(environment(cluster={"endpoint": closed | opened}), "api-endpoint")


def test_a_time_that_yaml_counts_in_sixties_is_suggested_as_it_was_written() -> None:
    """22:00 without quotes is 1320 in YAML: what is suggested is the time, and it is accepted."""
    data = environment(model(), nodePools={"maintenanceWindow": {"startUtc": 1320}})
    (wrong,) = [f for f in check(data).findings if f.id == "schema"]
    assert wrong.corrections == ({"nodePools.maintenanceWindow.startUtc": "22:00"},)
    assert not [f for f in check(corrected(data, wrong.corrections[0])).findings if f.id == "schema"]


def test_corrections_of_the_form_are_tried() -> None:
    """A text that the place does not take either is not suggested."""
    (wrong,) = [f for f in check(environment(model(name=123))).findings if f.id == "schema"]
    assert not wrong.corrections
    assert "use" not in wrong.fix


def test_a_faulty_name_is_one_error() -> None:
    """The list of models is not called empty because its only entry was left out."""
    (wrong,) = [f for f in check(environment(model(name="Bad_Name"))).findings if f.level is Level.ERROR]
    assert wrong.corrections == ({"models[0].name": "bad-name"},)


def test_a_refused_value_is_not_judged_as_its_default() -> None:
    """Memory is not calculated with one rank where the number of ranks cannot be read; other models still are."""
    large = {"model": "deepseek-r1", "server": role(instanceType="p5.48xlarge", tensorParallel=8)}
    refused = {**large, "server": {**large["server"], "dataParallel": 0}}  # type: ignore[dict-item]
    data = environment(aggregated(name="a", **refused), aggregated(name="b", **large))
    assert [f.path for f in check(data).findings if f.id == "memory-fit"] == ["models[1].server.tensorParallel"]


def test_traffic_is_not_judged_by_the_default_of_what_it_lacks() -> None:
    """A share of cached prompts that cannot be read is not taken for none, nor a step's tokens for vLLM's own."""
    rates = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 100}]
    work = {"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 2}
    sides = {"prefill": role(measuredRates=rates), "decode": role(measuredRates=rates)}
    assert found(environment(model(**sides, workload=work)), "load")
    assert not found(environment(model(**sides, workload={**work, "prefixHit": 1})), "load")
    assert found(environment(model(prefill=role(maxNumSeqs=10000))), "max-num-seqs")
    assert not found(environment(model(prefill=role(maxNumSeqs=10000, maxNumBatchedTokens=-1))), "max-num-seqs")


def test_a_correction_mends_the_model_and_its_candidate() -> None:
    """One finding is said of a model and its candidate: what is suggested is enough for both."""
    work = {"inputTokens": 9000, "outputTokens": 1000, "requestsPerSecond": 1}
    for own in ({}, {"maxModelLen": 8000}):
        data = environment(model(maxModelLen=8000, workload=work, candidate={"generation": "b", "kvCacheDtype": "fp8", **own}))
        said = found(data, "max-model-len")
        assert said[0].corrections
        for correction in (c for f in said for c in f.corrections):
            assert not found(corrected(data, correction), "max-model-len"), correction


def test_models_that_share_a_pool_get_one_bound() -> None:
    """Neither of two bounds may be enough: then the larger one is suggested for both, and it passes."""
    bound = {"tensorParallel": 8, "capacity": {"nodes": 2}, "replicas": 2}
    one = aggregated(name="a", server=role(**bound))
    data = environment(one, aggregated(name="b", server=role(**{**bound, "capacity": {"nodes": 4}})))
    said = found(data, "shared-pool")
    assert said
    assert all(f.allowed == "one bound for all" for f in said)
    assert any("models[0].server.capacity.nodes" in c and len(c) == 2 for f in said for c in f.corrections), said[0].sentence()


@pytest.mark.parametrize("pools", [{"terminationGraceHours": 600}, {"terminationGraceHours": 600, "expireAfterHours": 600}])
def test_a_bound_below_nothing_is_not_said(pools: dict[str, int]) -> None:
    """Where the time to drain alone is too long, nobody is told to let nodes live for less than no time."""
    said = [f for f in check(environment(model(), nodePools=pools)).findings if f.id == "node-life"]
    assert said or "terminationGraceHours" in str(check(environment(model(), nodePools=pools)).findings)
    assert not any("-" in f.allowed for f in said)


def test_ranks_that_cut_blocks_are_answered_with_other_ranks() -> None:
    """No tensorParallel helps against three ranks that slice experts: other ranks with whole experts are suggested."""
    data = environment(aggregated(model="deepseek-r1", server=role(instanceType="p5.48xlarge", tensorParallel=8, dataParallel=3)))
    (said,) = found(data, "expert-blocks")
    assert said.allowed
    assert any(c.get("models[0].server.dataParallel") == 2 for c in said.corrections), said.sentence()


def test_an_empty_list_of_sizes_is_not_said() -> None:
    """Where no size goes with both roles, allowed is a sentence and no list without entries."""
    three = {"model": "deepseek-r1", "prefill": role(tensorParallel=2, dataParallel=3), "decode": role(tensorParallel=3, dataParallel=3)}
    for fault in found(environment(model(**three)), "pd-tensor-parallel"):
        assert not fault.allowed.startswith(" ")


@pytest.mark.parametrize(
    ("fields", "faulty"),
    [
        ({"models": [aggregated(server={"tensorParallel": 4})]}, "models[0].server.instanceType"),
        ({"models": [model(prefill={"instanceType": 5})]}, "models[0].prefill.instanceType"),
        ({"existingCluster": "theirs", "cluster": {}}, "existingCluster"),
        ({"existingCluster": "theirs", "cluster": {"creatorAdmin": False}}, "existingCluster"),
        ({"existingCluster": "theirs", "cluster": {"kubernetesVersion": "1.30"}}, "existingCluster"),
        ({"network": {"existing": "theirs", "zones": ["us-east-1a"]}}, "network.existing"),
        ({"network": {"zones": ["us-east-1a", 5]}}, "network.zones[1]"),
    ],
)
def test_what_a_faulty_value_was_meant_to_be_is_not_missed(fields: dict[str, Any], faulty: str) -> None:
    """A role, a cluster or a network that is there with a fault is not said to be absent, and no other one is judged in its place."""
    said = [f.path for f in check({**environment(model()), **fields}).findings if f.level is not Level.INFO]
    assert said == [faulty]


def test_of_several_faulty_entries_each_can_be_taken_out() -> None:
    """Taking one entry out of a list moves the others, which is no new fault."""
    flags = ["--a=$(HF_TOKEN)", "--b=$(HF_TOKEN)"]
    places = [f"models[0].extraArgs[{i}]" for i in range(2)]
    assert [f.corrections for f in found(environment(aggregated(extraArgs=flags)), "extra-args")] == [({place: None},) for place in places]
