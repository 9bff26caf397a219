from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.catalog import Catalog, Model, load_catalog
from disagg_serving.catalog.entries import Instance
from disagg_serving.catalog.families import calculated
from disagg_serving.catalog.hf_config import read_model
from disagg_serving.catalog.loader import PACKAGE_DIR
from disagg_serving.errors import Level, SpecError
from disagg_serving.rules.evaluation import evaluate
from disagg_serving.spec.validation import try_parse
from factories import aggregated, environment, model, role

KINDS = ("engines", "instances", "models")
FILES = [f for kind in KINDS for f in sorted((PACKAGE_DIR / kind).glob("*.yaml"))]
CATALOG: Catalog = load_catalog()

LLAMA_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
}
GLM_5: dict[str, Any] = DEEPSEEK_V3 | {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "num_hidden_layers": 78,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "intermediate_size": 12288,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
}
REAL = {"llama-3.3-70b-instruct": LLAMA_70B, "deepseek-v3": DEEPSEEK_V3, "glm-5-fp8": GLM_5}
FACTS = (
    "architecture",
    "layers",
    "hidden_size",
    "attention_heads",
    "kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "context_length",
    "mla",
    "indexer",
    "moe",
    "sliding_window",
    "mtp_layers",
    "tied_embeddings",
    "weight_dtype",
)


def write_config(folder: Path, data: object) -> Path:
    """A config.json with `data`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def config_of(facts: Model) -> dict[str, Any]:
    """A config.json that says what a catalogue entry says, with the key names of its family."""
    data: dict[str, Any] = {
        "architectures": [facts.architecture],
        "num_hidden_layers": facts.layers,
        "hidden_size": facts.hidden_size,
        "num_attention_heads": facts.attention_heads,
        "num_key_value_heads": facts.kv_heads,
        "intermediate_size": facts.intermediate_size,
        "vocab_size": facts.vocab_size,
        "max_position_embeddings": facts.context_length,
        "tie_word_embeddings": facts.tied_embeddings,
        "num_nextn_predict_layers": facts.mtp_layers,
    }
    if facts.mla:
        data |= facts.mla.model_dump()
    else:
        data["head_dim"] = facts.head_dim
    if facts.indexer:
        data |= {"index_n_heads": facts.indexer.heads, "index_head_dim": facts.indexer.head_dim, "index_topk": facts.indexer.top_k}
        data["indexer_types"] = ["full"] * facts.indexer.layers + ["shared"] * (facts.layers - facts.indexer.layers)
    if facts.moe:
        experts = "n_routed_experts" if facts.mla else "num_local_experts" if facts.sliding_window else "num_experts"
        data |= {
            experts: facts.moe.experts,
            "num_experts_per_tok": facts.moe.experts_per_token,
            "n_shared_experts": facts.moe.shared_experts,
            "moe_intermediate_size": facts.moe.intermediate_size,
            "first_k_dense_replace": facts.moe.dense_layers,
        }
    if facts.sliding_window:
        n = facts.sliding_window.layers
        data |= {"sliding_window": facts.sliding_window.size, "layer_types": ["sliding_attention"] * n + ["full_attention"] * (facts.layers - n)}
    if facts.weight_dtype == "int4":
        weights = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}
        data["quantization_config"] = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    elif facts.weight_dtype != "bf16":
        data["quantization_config"] = {"quant_method": facts.weight_dtype}
    return data


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_every_entry_loads_with_source_and_date(file: Path) -> None:
    """Each entry is valid, is found by its file's name, and says where its facts come from and when they were checked."""
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    entry = getattr(CATALOG, file.parent.name)[file.name.removesuffix(".yaml")]
    assert file.suffix == ".yaml"
    assert entry.id == raw["id"] == file.name.removesuffix(".yaml")
    assert all(isinstance(s, str) and len(s) > 10 for s in raw["source"])
    assert isinstance(raw["checked"], date)


def test_every_entry_is_listed() -> None:
    """Iterating over a kind gives all its files, sorted: what `disagg catalog` and the messages show."""
    for kind in KINDS:
        shelf = getattr(CATALOG, kind)
        assert list(shelf) == sorted(f.name.removesuffix(".yaml") for f in FILES if f.parent.name == kind)
        assert len(shelf) == len(list(shelf)) > 2


@pytest.mark.parametrize("instance", list(CATALOG.instances))
def test_instances_are_consistent(instance: str) -> None:
    """What pods may use of a node is less than the node has, and its devices fit its cards."""
    i = CATALOG.instances[instance]
    assert i.allocatable.cpu_millis < i.vcpu * 1000
    assert i.allocatable.memory_mib < i.memory_gib * 1024
    assert i.allocatable.nvme_gib == pytest.approx(i.nvme_gb * 1e9 / 2**30, rel=0.001)
    assert i.gpu.memory_gib_torch < i.gpu.memory_mib / 1024
    assert i.efa.first_efa_card + i.efa.count <= i.efa.network_cards
    assert i.efa.count % i.gpu.count == 0


@pytest.mark.parametrize("entry", list(CATALOG.models))
def test_models_are_consistent(entry: str) -> None:
    """A model's checkpoint is as large as its parameters in its dtype, and its flags are whole."""
    m = CATALOG.models[entry]
    per_parameter = {"bf16": 2.0, "fp8": 1.0, "mxfp4": 0.53, "int4": 0.5625, "nvfp4": 0.5625}[m.weight_dtype]
    assert m.checkpoint_gb == pytest.approx(m.parameters_b.total * per_parameter, rel=0.08)
    assert m.parameters_b.active <= m.parameters_b.total
    assert m.attention_heads % m.kv_heads == 0
    assert all(f.startswith("--") and " " not in f for f in m.serve_flags)
    if m.mla:
        assert m.head_dim == m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim


@pytest.mark.parametrize("entry", list(CATALOG.engines))
def test_engine_images_do_not_float(entry: str) -> None:
    """Every image has an exact tag, so that what was checked is what runs."""
    e = CATALOG.engines[entry]
    tag = e.image.rpartition(":")[2]
    assert e.version in tag
    assert "latest" not in e.image


def user_entry(folder: Path, kind: str, template: str, target: str, **changes: Any) -> None:
    """A copy of an entry of the package in a user's folder, under another id."""
    data = yaml.safe_load((PACKAGE_DIR / kind / f"{template}.yaml").read_text(encoding="utf-8")) | {"id": target} | changes
    (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / kind / f"{target}.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


def test_user_folders_add_and_override(tmp_path: Path) -> None:
    """A folder of the user adds entries and replaces ours by id, the last folder wins, and the rest stays."""
    user_entry(tmp_path / "a", "instances", "p5.48xlarge", "p9.48xlarge", vcpu=200)
    user_entry(tmp_path / "a", "instances", "p5.48xlarge", "p5.48xlarge", notes="first")
    user_entry(tmp_path / "b", "instances", "p5.48xlarge", "p5.48xlarge", notes="second")
    known = load_catalog(["a", "b"], tmp_path)
    assert known.instances["p9.48xlarge"].vcpu == 200
    assert known.instances["p5.48xlarge"].notes == "second"
    assert set(known.instances) == {*CATALOG.instances, "p9.48xlarge"}
    assert list(known.models) == list(CATALOG.models)


def test_user_entries_serve_in_an_environment(tmp_path: Path) -> None:
    """An environment can use a user's instance type and model by id."""
    user_entry(tmp_path / "mine", "instances", "p5.48xlarge", "p9.48xlarge")
    user_entry(tmp_path / "mine", "models", "qwen3-32b", "our-model", repository="acme/our-model")
    data = environment(aggregated(model="our-model", server=role(instanceType="p9.48xlarge")), catalogDirs=["mine"])
    (group,) = evaluate(data, tmp_path).require_layout().groups
    assert (group.served.repository, group.instance.id) == ("acme/our-model", "p9.48xlarge")


@pytest.mark.parametrize(
    ("kind", "template", "changes", "words"),
    [
        ("models", "qwen3-32b", {"layers": 0}, "layers: 0 is too small"),
        ("models", "qwen3-32b", {"hiddenSiz": 1}, "hiddenSiz: is not a known key"),
        ("instances", "p5.48xlarge", {"checked": None}, "checked"),
        ("engines", "vllm-0.33.0-efa", {"source": []}, "source"),
        ("engines", "vllm-0.33.0-efa", {"id": "other"}, "id"),
    ],
)
def test_a_broken_entry_is_named_by_its_file(tmp_path: Path, kind: str, template: str, changes: dict[str, Any], words: str) -> None:
    """A fault in a catalogue file is reported with the file's name and the key, as a finding of the environment that uses it."""
    user_entry(tmp_path / "mine", kind, template, "broken", **changes)
    uses: dict[str, dict[str, Any]] = {
        "models": {"model": "broken"},
        "instances": {"server": role(instanceType="broken")},
        "engines": {"engine": "broken"},
    }
    with pytest.raises(SpecError, match=f"{kind}/broken.yaml: ?{words}"):
        getattr(load_catalog(["mine"], tmp_path), kind)["broken"]
    findings = evaluate(environment(aggregated(**uses[kind]), catalogDirs=["mine"]), tmp_path).findings
    assert any(f"{kind}/broken.yaml" in f.path for f in findings)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        (
            "instances/my-p5.yaml",
            None,
            "mine/instances/my-p5.yaml: id: p5.48xlarge is not the file's name (allowed: my-p5); call the file",
        ),
        (
            "instances/p5.48xlarge.yml",
            None,
            "mine/instances/p5.48xlarge.yml: is not read (allowed: a name that ends with .yaml); call it",
        ),
        (
            "instance/p5.48xlarge.yaml",
            None,
            "mine/instance: is not read (allowed: instances, models, engines, routers, metrics); did you",
        ),
        ("models/own.yaml", "id: [", "mine/models/own.yaml: own.yaml:2:1: is not valid YAML"),
    ],
)
def test_a_file_that_no_id_leads_to(tmp_path: Path, file: str, text: str | None, says: str) -> None:
    """A price in a file that is never read would be believed: each such file is an error with its place, and nothing else is."""
    target = tmp_path / "mine" / file
    target.parent.mkdir(parents=True)
    target.write_text(text or (PACKAGE_DIR / "instances/p5.48xlarge.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    errors = [f.sentence() for f in evaluate(environment(model(), catalogDirs=["mine"]), tmp_path).findings if f.level is Level.ERROR]
    assert [e[: len(says)] for e in errors] == [says]


def test_messages_keep_acronyms_and_names() -> None:
    """What is missing is described in the words of its description, of which only an ordinary first word loses its capital."""
    said = {f.path: f.fix for f in try_parse(Instance, {"id": "a"}).findings if f.path in {"architecture", "efa", "gpu"}}
    assert said == {"architecture": "add it: CPU architecture", "efa": "add it: Elastic Fabric Adapters", "gpu": "add it: accelerators"}


@pytest.mark.parametrize(("kind", "template"), [("models", "qwen3-32b"), ("instances", "p5.48xlarge"), ("engines", "vllm-0.33.0-efa")])
def test_an_unused_broken_entry_does_not_stop_an_environment(tmp_path: Path, kind: str, template: str) -> None:
    """A file is read when it is asked for: a faulty one in a shared folder stops only those who use it."""
    user_entry(tmp_path / "mine", kind, template, "broken", notes=1.5)
    assert evaluate(environment(model(), catalogDirs=["mine"]), tmp_path).ok


def test_missing_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    """A catalogue folder that is not there, or that lies outside the project, is an error and not an empty catalogue."""
    (tmp_path / "project").mkdir()
    (tmp_path / "outside").mkdir()
    for i, folder in enumerate(["missing", "../outside"]):
        with pytest.raises(SpecError) as caught:
            load_catalog(["."] * i + [folder], tmp_path / "project")
        assert [(f.path, f.value) for f in caught.value.findings] == [(f"catalogDirs[{i}]", folder)]


def test_a_file_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    """YAML would silently keep the last of two equal keys; here it is an error with line and column."""
    user_entry(tmp_path, "models", "qwen3-32b", "twice")
    file = tmp_path / "models/twice.yaml"
    file.write_text(file.read_text(encoding="utf-8") + "layers: 3\n", encoding="utf-8")
    lines = len(file.read_text(encoding="utf-8").splitlines())
    with pytest.raises(SpecError, match=rf"twice\.yaml:{lines}:1: .*layers stands here twice"):
        load_catalog(["."], tmp_path).models["twice"]


@pytest.mark.parametrize("entry", REAL)
def test_published_configs_give_the_known_size(entry: str, tmp_path: Path) -> None:
    """From the config.json of a known model we count the parameters that its publisher states, within one per cent."""
    known = CATALOG.models[entry]
    facts = read_model(write_config(tmp_path, REAL[entry]), "Some Model", "acme/some-model")
    assert facts.parameters_b.total == pytest.approx(known.parameters_b.total, rel=0.01)
    assert {f: getattr(facts, f) for f in FACTS} == {f: getattr(known, f) for f in FACTS}
    assert (facts.id, facts.repository) == ("some-model", "acme/some-model")


@pytest.mark.parametrize("entry", list(CATALOG.models))
def test_a_config_gives_the_facts_of_the_catalogue(entry: str, tmp_path: Path) -> None:
    """Reading a config.json and the catalogue's entry agree for every family: GQA, MLA, indexer, experts, sliding window."""
    known = CATALOG.models[entry]
    facts = read_model(write_config(tmp_path, config_of(known)) / "config.json", "m", "acme/m")
    assert {f: getattr(facts, f) for f in FACTS} == {f: getattr(known, f) for f in FACTS}
    assert facts.parameters_b.total == pytest.approx(known.parameters_b.total, rel=0.01)
    assert facts.parameters_b.active == pytest.approx(known.parameters_b.active, rel=0.12), "publishers count embeddings or leave them out"


def test_the_size_on_disk_is_read_from_the_index(tmp_path: Path) -> None:
    """The safetensors index beside config.json knows the checkpoint's size; without it the parameters tell."""
    write_config(tmp_path, LLAMA_70B)
    assert read_model(tmp_path, "m", "a/m").checkpoint_gb == pytest.approx(141.1, rel=0.01)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 150 * 10**9}}), encoding="utf-8")
    assert read_model(tmp_path, "m", "a/m").checkpoint_gb == 150


def test_the_text_part_of_a_larger_model_counts(tmp_path: Path) -> None:
    """Multimodal models keep the language model's facts in text_config."""
    inner = {k: v for k, v in LLAMA_70B.items() if k != "architectures"}
    facts = read_model(write_config(tmp_path, {"architectures": ["LlamaForCausalLM"], "text_config": inner}), "m", "a/m")
    assert (facts.layers, facts.hidden_size) == (80, 8192)


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ({}, "architectures[0]", "none"),
        (LLAMA_70B | {"architectures": ["../x"]}, "architectures[0]", "no class of a model"),
        ({k: v for k, v in LLAMA_70B.items() if k != "hidden_size"}, "hidden_size", "missing"),
        (LLAMA_70B | {"num_hidden_layers": "80"}, "num_hidden_layers", "80"),
        (LLAMA_70B | {"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method", "magic"),
        ({k: v for k, v in DEEPSEEK_V3.items() if k != "kv_lora_rank"}, "kv_lora_rank", "missing"),
        ([1], "", "is not a JSON object"),
    ],
)
def test_configs_that_are_not_understood_are_refused(tmp_path: Path, data: object, path: str, words: str) -> None:
    """A wrong guess of a model's memory is worse than none: what is not known is named, with what would be."""
    with pytest.raises(SpecError, match=words) as caught:
        read_model(write_config(tmp_path, data), "m", "a/m")
    assert path in [f.path for f in caught.value.findings]
    assert "architectures" not in path or all(a in str(caught.value) for a in calculated())


def test_a_config_in_an_environment_names_its_place(tmp_path: Path) -> None:
    """A stack's model may be a folder; faults in it are findings at the model's path, and a good one needs its repository."""
    write_config(tmp_path / "good", LLAMA_70B)
    write_config(tmp_path / "bad", {k: v for k, v in LLAMA_70B.items() if k != "hidden_size"})
    good, bad = ({"model": f"./{name}", "repository": "acme/m", "maxModelLen": 8192, "server": role(tensorParallel=4)} for name in ("good", "bad"))
    assert evaluate(environment(aggregated(**good)), tmp_path).require_layout().groups[0].served.repository == "acme/m"
    refused = evaluate(environment(aggregated(**bad)), tmp_path)
    (path,) = [f.path for f in refused.findings if f.id == "model-config"]
    assert re.fullmatch(r"models\[0\]\.model: ?hidden_size", path)
    nameless = evaluate(environment(aggregated(**{**good, "repository": None})), tmp_path)
    assert [f.path for f in nameless.findings if f.id == "model-config"] == ["models[0].repository"]
    outside = evaluate(environment(aggregated(**{**good, "model": "../good"})), tmp_path / "bad")
    assert [f.path for f in outside.findings if f.id == "model-config"] == ["models[0].model"]


def test_an_unknown_class_is_refused_until_a_start_settles_it(tmp_path: Path) -> None:
    """Its memory is never guessed: an error at the model, none with the figures of its log, and a warning for a catalogue entry of one's own."""
    write_config(tmp_path / "odd", LLAMA_70B | {"architectures": ["MambaForCausalLM"]})
    odd = {"model": "./odd", "repository": "acme/m", "maxModelLen": 8192}

    def said(of: dict[str, Any], **more: Any) -> list[tuple[str, Level]]:
        return [(f.path, f.level) for f in evaluate(environment(of, **more), tmp_path).findings if f.id in {"memory-unknown", "calibration"}]

    assert said(aggregated(**odd, server=role(tensorParallel=4))) == [("models[0].model", Level.ERROR)]
    log = {"weightsGiB": 33.0, "kvCacheGiB": 30.0, "kvCacheTokens": 400_000}
    assert said(aggregated(**odd, server=role(tensorParallel=4, calibration=log))) == []
    user_entry(tmp_path / "mine", "models", "qwen3-32b", "own", architecture="MambaForCausalLM")
    assert said(aggregated(model="own", server=role(tensorParallel=4)), catalogDirs=["mine"]) == [("models[0].model", Level.WARNING)]
