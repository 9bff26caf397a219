"""Every option of the engine and every variable of its parts has a verdict, and the rules keep to it whatever the spelling."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.catalog.flags import flags_of, options_of, short_flags, versions
from disagg_serving.catalog.verdicts import every_option, readers, variables, verdict_of
from disagg_serving.cli.main import main
from disagg_serving.errors import Finding, Level
from disagg_serving.manifests.engine import NCCL_LOG, environment
from disagg_serving.planning.command_line import OWNED, command_args, is_set
from disagg_serving.rules.options import MEANS, every_variable, look_up, options
from disagg_serving.spec import ModelSpec
from factories import aggregated, check, layout, model
from factories import environment as stack

ON_S3 = {"weights": {"s3": {"bucket": "weights"}}}


def said(data: dict[str, Any], *rules: str) -> list[Finding]:
    """What these rules say of an environment."""
    return [f for f in check(data).findings if f.id in rules]


def refused(data: dict[str, Any]) -> list[str]:
    """Places that extra-args and extra-env refuse, which no stack file can accept."""
    return [f.path for f in said(data, "extra-args", "extra-env") if f.level is Level.ERROR]


@pytest.mark.parametrize("version", versions())
def test_every_option_has_a_verdict(version: str) -> None:
    """An engine's release is not added before somebody has said what each option of its parser means here."""
    assert [name for name in options_of(version) if verdict_of(name) is None and name not in OWNED] == []


def test_no_verdict_is_left_behind() -> None:
    """A verdict is about an option that some parser has, and about one that a field or the project sets only where that is not always so."""
    known = set(every_option())
    told = {one.name for one in options()}
    assert told == known
    both = {name for name in known if name in OWNED and verdict_of(name) is not None}
    plain = ModelSpec.model_validate(aggregated())
    assert [name for name in both if is_set(name, plain)] == []


def test_every_variable_has_a_verdict() -> None:
    """The same holds for what the parts of an engine read."""
    assert [name for names in readers().values() for name in names if name not in variables()] == []


def test_verdicts_give_reason_and_source() -> None:
    """What is not free says why, in words that follow the flag, and where that is read."""
    for one in (*options(), *every_variable()):
        about = one.verdict
        assert about.verdict in MEANS
        if about.verdict not in {"free", "ours"}:
            assert about.source.startswith("https://"), one.name
            assert re.match(r"[a-z]", about.reason), one.name
            assert about.verdict != "counted" or about.counts, one.name


def test_variables_of_the_pods_are_the_project_s() -> None:
    """What every pod has already is not given a second time, but for NCCL's log."""
    for data in (stack(model()), stack(aggregated(**ON_S3))):
        for group in layout(data).groups:
            names = {entry["name"] for entry in environment(group)} - set(NCCL_LOG)
            assert {name for name in names if variables()[name].verdict != "ours"} <= {"VLLM_API_KEY"}


BROKEN = [
    "--uds=/tmp/x.sock", "--host=127.0.0.1", "--grpc", "--ssl-certfile=/c.pem", "--ssl-keyfile=/k.pem", "--ssl-ca-certs=/ca.pem",
    "--disable-log-stats", "--skip-tokenizer-init", "--tokens-only", "--runner=pooling", "--runner=draft", "--convert=embed", "--mm-encoder-only",
    "--load-format=dummy", "--download-dir=/tmp", "--config=/etc/vllm.yaml", "--device-ids=0,1", "--distributed-executor-backend=ray",
    "--enable-fault-tolerance", "--enable-elastic-ep", '--ec-transfer-config={"ec_connector":"x"}', "--ray-workers-use-nsight",
]  # fmt: skip


def spelt(arg: str) -> list[str]:
    """The same flag with underscores and, where nothing else begins like it, cut short."""
    flag, equals, value = arg.partition("=")
    known = flags_of("0.33.0") or {}
    found = [arg, f"--{flag[2:].replace('-', '_')}{equals}{value}"]
    for cut in (1, 2, 3):
        options_alike = {f.option for name, f in known.items() if name.startswith(flag[:-cut])}
        if len(options_alike) == 1 and flag[:-cut] not in known:
            found.append(f"{flag[:-cut]}{equals}{value}")
    return found


@pytest.mark.parametrize("arg", [form for arg in BROKEN for form in spelt(arg)])
@pytest.mark.parametrize("of", [model, aggregated], ids=["split", "server"])
def test_what_takes_away_what_the_project_relies_on(arg: str, of: Any) -> None:
    """Port, HTTP, metrics, tokenizer, API, device choice and connector stay, however the flag is spelt."""
    assert refused(stack(of(extraArgs=[arg]))) == ["models[0].extraArgs[0]"]


HARMLESS = [
    "--host=0.0.0.0", "--host=::", "--distributed-executor-backend=mp", "--load-format=auto", "--load-format=safetensors", "--runner=auto",
    "--runner=generate", "--convert=none", "--no-skip-tokenizer-init", "--no-enable-sleep-mode", "--data-parallel-backend=mp",
    "--pipeline-parallel-size=1", "--data-parallel-size=1", "--dtype=auto", "--kv-cache-dtype=auto", "--kv-offloading-backend=native",
    '--kv-events-config={"enable_kv_cache_events":true}', "--decode-context-parallel-size=1", "--prefill-context-parallel-size=1",
    "--no-enable-return-routed-experts",
]  # fmt: skip


@pytest.mark.parametrize("arg", HARMLESS)
@pytest.mark.parametrize("of", [model, aggregated], ids=["split", "server"])
def test_what_holds_anyway_passes(arg: str, of: Any) -> None:
    """A flag with the value that it has without it says nothing new: public manifests are full of them."""
    data = stack(of(extraArgs=[arg]))
    assert [f.sentence() for f in check(data).findings if f.level is not Level.INFO] == [
        f.sentence() for f in check(stack(of())).findings if f.level is not Level.INFO
    ]
    for group in layout(data).groups:
        names = [a.split("=", 1)[0] for a in command_args(group, worker=False)]
        assert len(names) == len(set(names))


def test_a_value_of_a_field_may_be_said_twice() -> None:
    """A flag that repeats what the field says passes and stands on the command line once; one that says anything else names the field."""
    tp = 4
    for value, faults in ((tp, []), (2, ["models[0].extraArgs[0]"])):
        data = stack(aggregated(extraArgs=[f"--tensor-parallel-size={value}"], server={"instanceType": "p5.48xlarge", "tensorParallel": tp}))
        assert refused(data) == faults
    assert [f.fix for f in said(data, "extra-args")] == ["set tensorParallel of the role"]
    assert refused(stack(aggregated(extraArgs=["--port=8000"]))) == []
    assert refused(stack(model(extraArgs=["--port=8000"]))) == ["models[0].extraArgs[0]"]


IN_SPLIT_ALONE = [
    "--kv-offloading-size=64",
    "--kv_offloading_size=64",
    "--kv-offloading-s=64",
    "--kv-offloading-backend=lmcache",
    "--enable-sleep-mode",
]


@pytest.mark.parametrize("arg", IN_SPLIT_ALONE)
def test_what_breaks_the_connector(arg: str) -> None:
    """What replaces NixlConnector or pulls memory away from it is an error with prefill and decode, and none in server mode."""
    assert refused(stack(model(extraArgs=[arg]))) == ["models[0].extraArgs[0]"]
    assert refused(stack(aggregated(extraArgs=[arg]))) == []


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"])
@pytest.mark.parametrize("value", ["expandable_segments:True", "max_split_size_mb:64,expandable_segments: True"])
def test_expandable_segments(name: str, value: str) -> None:
    """KV cache that NIXL has registered stays where it is, by both of PyTorch's names, unless vLLM's own allocator holds it."""
    assert refused(stack(model(extraEnv={name: value}))) == [f"models[0].extraEnv.{name}"]
    assert refused(stack(model(extraEnv={name: value}, extraArgs=["--enable-cumem-allocator"]))) == []
    assert refused(stack(model(extraEnv={name: "max_split_size_mb:64"}))) == []
    assert refused(stack(aggregated(extraEnv={name: value}))) == []


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("HF_HUB_CACHE", "/home/me/.cache", "/weights/hub"),
        ("VLLM_TARGET_DEVICE", "cpu", "cuda"),
        ("NVIDIA_DRIVER_CAPABILITIES", "video", "all"),
        ("HUGGINGFACE_CO_STAGING", "1", "0"),
    ],
)
def test_variables_that_take_something_away(name: str, bad: str, good: str) -> None:
    """So it is with variables: by the values that do it."""
    assert refused(stack(aggregated(extraEnv={name: bad}))) == [f"models[0].extraEnv.{name}"]
    assert refused(stack(aggregated(extraEnv={name: good}))) == []


@pytest.mark.parametrize(
    ("name", "value"), [("FI_HMEM", "system"), ("FI_HMEM_DISABLE_P2P", "1"), ("NCCL_HOSTID", "one"), ("FI_EFA_IFACE", "rdmap0s1")]
)
def test_variables_that_harm_efa(name: str, value: str) -> None:
    """What keeps network cards from GPU memory is told where pods talk over EFA, and only there."""
    assert [f.path for f in said(stack(model(extraEnv={name: value})), "efa-env")] == [f"models[0].extraEnv.{name}"]
    assert said(stack(aggregated(extraEnv={name: value})), "efa-env") == []


@pytest.mark.parametrize(
    ("arg", "meant"),
    [
        ("-O.mode=3", "--compilation-config.mode=3"),
        ("-cc.mode=3", "--compilation-config.mode=3"),
        ("-q=fp8", "--quantization=fp8"),
        ("-asc=2", "--api-server-count=2"),
    ],
)
def test_short_flags_are_led_to_their_long_form(arg: str, meant: str) -> None:
    """A short flag is not read here, but its long form is known."""
    (found,) = said(stack(aggregated(extraArgs=[arg])), "extra-args")
    assert found.fix == f"use {meant}"


@pytest.mark.parametrize("arg", ["-tp=7", "-dp=7", "-n=7", "-sc={}", "-ep"])
def test_short_flags_of_the_project(arg: str) -> None:
    """A short flag of what the project sets says so, and names the field."""
    (found,) = said(stack(aggregated(extraArgs=[arg])), "extra-args")
    long = short_flags("0.33.0")[arg.partition("=")[0]]
    assert found.message.startswith(f"is short for {long}, which is set by the project")
    assert found.fix.startswith("set ")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--device-memory-utilization", "--gpu-memory-utilization"),
        ("-tp", "--tensor-parallel-size"),
        ("uds", "--uds"),
        ("--kv_transfer_config.kv_role", "--kv-transfer-config"),
        ("--disable-expert-parallel", "--enable-expert-parallel"),
        ("NCCL_ALGO", "NCCL_ALGO"),
    ],
)
def test_any_spelling_is_explained(word: str, name: str) -> None:
    """`disagg explain --flag` finds the option behind each spelling."""
    assert [one.name for one in look_up(word)] == [name]


def test_the_command_line_explains_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """`disagg explain --flag` gives verdict, reason and source of what a spelling means, and says where a list is of what it does not know."""
    assert main(["explain", "--flag", "kv_offloading_size"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("--kv-offloading-size (pd-refused) It puts OffloadingConnector in the place of NixlConnector")
    assert "Source: https://github.com/vllm-project/vllm/blob/" in told
    assert main(["explain", "--flag", "--no-such-thing"]) == 1
    assert "no flag or variable --no-such-thing is known" in capsys.readouterr().err


def test_the_page_shows_every_option() -> None:
    """docs/reference/engine-options.md leaves none out."""
    page = (Path(__file__).parents[2] / "docs/reference/engine-options.md").read_text(encoding="utf-8")
    assert [one.name for one in (*options(), *every_variable()) if f"`{one.name}`" not in page] == []
