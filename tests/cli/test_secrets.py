from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pulumi
import pytest
import yaml
from command_line import Run, write_project
from disagg_serving.document.resource import SECRET
from disagg_serving.manifests.bundle import build_all
from disagg_serving.recording import recorder
from disagg_serving.recording.graph import Graph
from disagg_serving.records import data_of
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY, find_project
from factories import SHIPPED, STACKS, aggregated, check, environment, layout, model
from recording import PROJECT, environment_graph, program_graph

MARK = "v1:MARKEDciphertext"
VALUE = "hf_MARKEDvalue"
"""A secret's value, which the recorder is made to hand to programs; the ciphertext above is what stands in stack files."""

REVISION = "0123456789abcdef0123456789abcdef01234567"
PUBLIC = {"public": True, "sourceRanges": ["203.0.113.0/24"], "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/1"}
SECRETS = ("hfToken", "mirrorToken", "apiKey", "otherKey")
EVERY_KIND = environment(
    model(name="split", weights={"tokenKey": "hfToken"}, gateway={**PUBLIC, "apiKeySecret": "apiKey"}),
    aggregated(
        name="copied",
        model="gpt-oss-120b",
        weights={"revision": REVISION, "tokenKey": "mirrorToken", "mirror": True, "s3": {"bucket": "example-weights", "create": True}},
        gateway={"apiKeySecret": "otherKey"},
    ),
)
"""Tokens of pods and of a copying Job, and keys of clients."""


@pytest.fixture
def secret_project(tmp_path: Path) -> Path:
    """A project whose stack has an encrypted Hugging Face token."""
    data = environment(model(weights={"tokenKey": "hfToken"}))
    return write_project(tmp_path, {"disagg-serving:hfToken": {"secure": MARK}, "disagg-serving:environment": data})


def test_secrets_are_shown_as_a_word(disagg: Run, secret_project: Path) -> None:
    """Neither ciphertext nor value of a secret stands in any output; a word stands where it will be."""
    printed = ""
    for args in (("plan", "test"), ("plan", "test", "--format", "json"), ("check", "test"), ("check", "test", "--format", "json")):
        assert disagg(*args, cwd=secret_project) == 0
        printed += disagg.out + disagg.err
        if args == ("plan", "test", "--format", "json"):
            recorded = [r["inputs"] for r in json.loads(disagg.out)["resources"] if r["type"] == "kubernetes:core/v1:Secret"]
            assert [r["stringData"] for r in recorded] == [{"token": "<secret>"}]
    assert disagg("render", "test", "--images", "-o", "out", cwd=secret_project) == 0
    written = {f.name: f.read_text(encoding="utf-8") for f in (secret_project / "out").iterdir()}
    (name,) = [n for n in written if "-secret-" in n]
    assert yaml.safe_load(written[name])["stringData"] == {"token": "<secret>"}
    printed += disagg.out + disagg.err + "".join(written.values())
    assert "MARKED" not in printed


def test_a_secret_that_the_stack_lacks_is_missed(disagg: Run, secret_project: Path) -> None:
    """A stack that names a secret which nobody has set is told so before `pulumi up` fails on it."""
    file = secret_project / "stacks/Pulumi.test.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("disagg-serving:hfToken:", "disagg-serving:other:"), encoding="utf-8")
    disagg("check", "test", cwd=secret_project)
    assert "[secret-keys] models[0].weights.tokenKey: hfToken is not a secret of this stack (allowed: other)" in disagg.out
    assert "MARKED" not in disagg.out + disagg.err


def test_secrets_inside_the_environment_do_not_leak(disagg: Run, tmp_path: Path) -> None:
    """A nested secret is refused without being printed, and so is an environment that is encrypted as a whole."""
    nested = environment(model(extraEnv={"KEY": {"secure": MARK}}))
    project = write_project(tmp_path, {"disagg-serving:environment": nested})
    (project / "stacks/Pulumi.whole.yaml").write_text(yaml.safe_dump({"config": {"disagg-serving:environment": {"secure": MARK}}}), encoding="utf-8")
    for stack, words in (("test", "models[0].extraEnv.KEY"), ("whole", "encrypted as a whole")):
        for command in ("check", "plan"):
            assert disagg(command, stack, cwd=project) == 2
            assert words in disagg.out
            assert "MARKED" not in disagg.out + disagg.err


def written_forms(mark: str) -> tuple[str, ...]:
    """How a marked text may come out: as it is, in base64 as in a Secret's data, escaped for a URL or for JSON."""
    return (mark, b64encode(mark.encode()).decode(), quote(mark, safe=""), json.dumps(mark))


def leaked(text: str) -> list[str]:
    """The forms of a secret that stand in a text, or the part of it that is unmistakable."""
    return [form for mark in (MARK, VALUE) for form in written_forms(mark) if form in text] + re.findall("MARKED[a-z]*", text)


@pytest.mark.parametrize("mark", [MARK, VALUE])
@pytest.mark.parametrize("form", range(4))
def test_the_scan_finds_every_form(mark: str, form: int) -> None:
    """The tests below would notice a secret that is encoded, not only one in plain text."""
    assert leaked(f"before {written_forms(mark)[form]} after")
    assert leaked("a stack without secrets") == []


def encrypted(config: dict[str, Any]) -> dict[str, Any]:
    """A stack file as `pulumi config set --secret` leaves it, with secrets of this project and of a provider."""
    secrets = {f"disagg-serving:{key}": {"secure": f"{MARK}{i}"} for i, key in enumerate(SECRETS)}
    return {"encryptionsalt": f"{MARK}salt", "config": {**config, **secrets, "aws:secretKey": {"secure": f"{MARK}provider"}}}


@pytest.fixture
def marked_project(tmp_path: Path) -> Path:
    """This project with its shipped stacks and one with every kind of secret, all with marked ciphertexts."""
    project = write_project(tmp_path, {})
    (project / "stacks/Pulumi.test.yaml").unlink()
    configs = {stack: yaml.safe_load((SHIPPED / f"stacks/Pulumi.{stack}.yaml").read_text(encoding="utf-8"))["config"] for stack in STACKS}
    configs["every"] = {"aws:region": "us-east-1", ENVIRONMENT_KEY: EVERY_KIND}
    for stack, config in configs.items():
        (project / f"stacks/Pulumi.{stack}.yaml").write_text(yaml.safe_dump(encrypted(config)), encoding="utf-8")
    return project


@pytest.mark.parametrize("stack", [*STACKS, "every"])
def test_no_command_shows_or_writes_a_secret(disagg: Run, marked_project: Path, stack: str) -> None:
    """Neither output nor any file that a command writes holds a ciphertext, salt or value, whatever the stack and the format."""
    stack_file = marked_project / f"stacks/Pulumi.{stack}.yaml"
    assert leaked(stack_file.read_text(encoding="utf-8"))
    commands = (
        ("check", stack),
        ("check", stack, "--format", "json"),
        ("plan", stack, "-o", "plan.txt"),
        ("plan", stack, "--format", "json", "-o", "plan.json"),
        ("render", stack, "--images", "-o", "out"),
    )
    for command in commands:
        assert disagg(*command, cwd=marked_project) == 0
        assert leaked(disagg.out + disagg.err) == [], command
    written = [f for f in marked_project.rglob("*") if f.is_file() and f.parent.name != "stacks" and f.suffix != ".pyc"]
    assert {"plan.txt", "plan.json"} < {f.name for f in written}
    assert [f.name for f in written if leaked(f.name + f.read_text(encoding="utf-8"))] == []


def test_plans_of_all_stacks_show_no_secret(disagg: Run, marked_project: Path) -> None:
    """Nor does the plan of the whole project, which shows every stack."""
    for options in ((), ("--format", "json")):
        assert disagg("plan", "--all", *options, cwd=marked_project) == 0
        assert len(disagg.out) > 1000
        assert leaked(disagg.out + disagg.err) == []


def test_every_rendered_secret_is_a_word(disagg: Run, marked_project: Path) -> None:
    """Of each secret that the stack names, a Kubernetes Secret with a word in place of the value is written, and no other data."""
    assert disagg("render", "every", "-o", "out", cwd=marked_project) == 0
    secrets = [o for o in (yaml.safe_load(f.read_text(encoding="utf-8")) for f in (marked_project / "out").glob("*-secret-*")) if o]
    shown = {(o["metadata"]["namespace"], o["metadata"]["name"]): o["stringData"] for o in secrets}
    assert shown == {(m, n): {k: SECRET} for m in ("split", "copied") for n, k in (("hf-token", "token"), ("api-key", "key"))}
    assert not any("data" in o for o in secrets)


def test_a_failing_stack_shows_no_secret(disagg: Run, marked_project: Path) -> None:
    """Messages about a stack that fails hold no secret, also where the fault is next to one."""
    file = marked_project / "stacks/Pulumi.every.yaml"
    sound = file.read_text(encoding="utf-8")
    faults = (
        ("tokenKey: hfToken", "tokenKey: hfTokn"),
        ("hfToken:\n", "'hf Token':\n"),
        ("apiKey:\n    secure:", "apiKey:\n    secured:"),
        ("apiKey:\n    secure: v1:", "apiKey: "),
        ("config:", "confg:"),
    )
    assert all(sound.count(fault[0]) for fault in faults)
    for text in [*(sound.replace(*fault, 1) for fault in faults), f"{sound}\n  - {MARK}: [", f"{MARK}: {{{sound}"]:
        file.write_text(text, encoding="utf-8")
        for command in (("check", "every", "--fail-on", "warning"), ("plan", "every", "--fail-on", "warning"), ("render", "every", "-o", "out")):
            done = disagg(*command, cwd=marked_project)
            assert done or "render" in command, text
            assert leaked(disagg.out + disagg.err) == [], text


class Heard:
    """An engine that keeps what programs log."""

    said: list[str]

    def __init__(self) -> None:
        self.said = []

    def Log(self, request: Any) -> None:  # noqa: N802 (the engine's name)
        """Keep a message."""
        self.said.append(str(request.message))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What programs log, recorded with a marked value for every secret."""
    engine = Heard()
    monkeypatch.setattr(recorder, "_PLACEHOLDER", VALUE)
    monkeypatch.setattr(recorder, "_Engine", lambda: engine)
    return engine


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """All keys and texts in plain data, with their places."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{place}.{key}", str(key)
            yield from leaves(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{place}[{i}]")
    else:
        yield place, str(value)


def spilled(graph: Graph) -> list[str]:
    """Where a recorded program holds a secret's value: in names, inputs, options, dependencies or outputs."""
    data: dict[str, Any] = data_of(graph.resources)
    return [place for place, text in leaves({**data, "outputs": dict(graph.outputs)}) if leaked(text)]


def test_recorded_programs_hold_no_secret_value(heard: Heard, capfd: pytest.CaptureFixture[str]) -> None:
    """Programs see the values; what they register, export, log and print has a word in their place."""
    keys = frozenset(f"disagg-serving:{key}" for key in SECRETS)
    graph = environment_graph(EVERY_KIND, keys)
    secrets = {r.inputs["metadata"]["namespace"] + "/" + r.inputs["metadata"]["name"]: r for r in graph.of_type("kubernetes:core/v1:Secret")}
    assert sorted(secrets) == ["copied/api-key", "copied/hf-token", "split/api-key", "split/hf-token"]
    for secret in secrets.values():
        # the SDK marks a mapping with a secret inside as a whole, or its values
        assert secret.inputs["stringData"] in (SECRET, {"token": SECRET}, {"key": SECRET})
        assert set(secret.options["additionalSecretOutputs"]) == {"data", "stringData"}
    assert spilled(graph) == []
    assert graph.outputs["kubeconfig"] == SECRET
    assert heard.said
    assert [m for m in heard.said if leaked(m)] == []
    assert leaked("".join(capfd.readouterr())) == []


@pytest.mark.parametrize("stack", STACKS)
def test_recorded_stacks_hold_no_secret_value(heard: Heard, stack: str) -> None:
    """The same of each shipped stack, with secrets of its own project and of the AWS provider at hand."""
    file = PROJECT.stack_file(stack)
    keys = frozenset({"disagg-serving:hfToken", "disagg-serving:apiKey", "aws:secretKey", *file.secrets})
    graph = recorder.record(PROJECT.root, PROJECT.name, stack, {**file.config, ENVIRONMENT_KEY: file.environment}, keys).graph
    assert graph.resources
    assert spilled(graph) == []
    assert [m for m in heard.said if leaked(m)] == []


def test_the_recording_sees_a_value_that_is_not_hidden(heard: Heard) -> None:
    """The two tests above are worth something: a program that spills a secret is found out."""

    def program() -> None:
        value = pulumi.Config("disagg-serving").require("hfToken")
        pulumi.export("token", value)
        pulumi.log.info(f"the token is {value}")

    graph = program_graph(program, secrets=frozenset({"disagg-serving:hfToken"}))
    assert spilled(graph) == [".outputs.token"]
    assert [m for m in heard.said if leaked(m)]


def test_components_hide_values_that_come_in_the_open(heard: Heard) -> None:
    """A program of one's own may hand a plain text over: the component makes a secret of it before it goes anywhere."""

    def program() -> None:
        from disagg_serving.resources import ModelServing

        data = {"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}, "weights": {"token_key": "hf"}}
        ModelServing(
            "alone",
            {
                "model": {**data, "gateway": {"api_key_secret": "key"}},  # type: ignore[typeddict-item]
                "zone": "us-east-1a",
                "token": VALUE,
                "api_key": pulumi.Output.from_input(VALUE),
            },
        )

    graph = program_graph(program)
    assert len(graph.of_type("kubernetes:core/v1:Secret")) == 2
    assert spilled(graph) == []
    assert [m for m in heard.said if leaked(m)] == []


# ---- pods ----------------------------------------------------------------------------------------------------------------------------------

SOUNDS_SECRET = re.compile("TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL")


def objects_of(case: str) -> list[dict[str, Any]]:
    """What a shipped stack renders, or the environment with every kind of secret."""
    if case == "every":
        return build_all(layout(EVERY_KIND))
    project = find_project(SHIPPED)
    return build_all(evaluate_file(project.stack_file(case), project.root).require_layout())


def containers(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All containers of all pods, sidecars and Jobs included, each with its namespace."""
    for o in objects:
        for place, _ in leaves(o):
            if re.search(r"\.(initContainers|containers)$", place):
                pods: Any = o
                for part in place.strip(".").split("."):
                    pods = pods[part]
                yield from ((o["metadata"]["namespace"], c) for c in pods)


def variables(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A container's environment by name."""
    return {v["name"]: v for v in container.get("env", [])}


@pytest.mark.parametrize("case", [*STACKS, "every"])
def test_secret_variables_are_references(case: str) -> None:
    """A variable that sounds secret has no value in the manifest: it refers to a key of a Secret that is rendered in the pod's namespace."""
    objects = objects_of(case)
    secrets = {(o["metadata"]["namespace"], o["metadata"]["name"], k) for o in objects if o["kind"] == "Secret" for k in o["stringData"]}
    used = set()
    for namespace, container in containers(objects):
        assert "envFrom" not in container
        for name, variable in variables(container).items():
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            assert bool(reference) is bool(SOUNDS_SECRET.search(name)), name
            if reference:
                assert set(variable) == {"name", "valueFrom"}
                used.add((namespace, reference["name"], reference["key"]))
    assert used == secrets
    assert len(secrets) == (4 if case == "every" else 0)


def expansions(container: dict[str, Any]) -> list[str]:
    """Secret variables that the kubelet would put into a command, an argument or another variable."""
    secret = [name for name, v in variables(container).items() if "secretKeyRef" in v.get("valueFrom", {})]
    plain = [v["value"] for v in variables(container).values() if "value" in v]
    words = [*container.get("command", []), *container.get("args", []), *plain]
    hooks = ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle")
    words += [text for _, text in leaves([container.get(hook, {}) for hook in hooks])]
    return [w for w in words if any(re.search(rf"\$[({{]?{name}\b", w) for name in secret)]


@pytest.mark.parametrize("case", [*STACKS, "every"])
def test_no_secret_on_a_command_line(case: str) -> None:
    """Commands are seen by whoever lists processes or reads a pod: none holds a secret, by value or by expansion, or has a flag for one."""
    found = [c for _, c in containers(objects_of(case))]
    assert {"vllm"} <= {c["name"] for c in found}
    for container in found:
        assert expansions(container) == []
        words = [*container.get("command", []), *container.get("args", [])]
        assert not [w for w in words if SECRET in w or leaked(w) or re.match("--(api-key|hf-token|token|password)", w)]


def test_expansions_are_noticed() -> None:
    """The test above is worth something: it sees a secret in an argument, a probe or another variable."""
    secret = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}
    for more in (
        {"args": ["--hf-token=$(HF_TOKEN)"]},
        {"command": ["sh", "-c", "curl -H ${HF_TOKEN}"]},
        {"command": ["sh", "-c", "curl -H $HF_TOKEN"]},
        {"startupProbe": {"exec": {"command": ["check", "$(HF_TOKEN)"]}}},
    ):
        assert expansions({"env": [secret], **more})
    assert expansions({"env": [secret, {"name": "COPY", "value": "$(HF_TOKEN)"}]})
    assert not expansions({"env": [secret], "args": ["--path=$(HF_HOME)"]})


@pytest.mark.parametrize(
    "overrides",
    [
        {"extraEnv": {"HF_TOKEN": VALUE}},
        {"extraEnv": {"VLLM_API_KEY": VALUE}},
        {"extraEnv": {"AWS_SECRET_ACCESS_KEY": VALUE}},
        {"extraArgs": [f"--api-key={VALUE}"]},
        {"extraArgs": [f"--hf-token={VALUE}"]},
        {"weights": {"token": VALUE}},
    ],
)
def test_secrets_in_the_open_are_refused_without_being_repeated(overrides: dict[str, Any]) -> None:
    """A token in a stack file's plain text is refused, and the sentence that says so does not hold it."""
    evaluation = check(environment(model(**overrides)))
    errors = [f for f in evaluation.findings if f.level == "error"]
    assert errors
    assert [f.sentence() for f in errors if leaked(f.sentence())] == []


@pytest.mark.parametrize("overrides", [{"extraArgs": ["--chat-template=$(VLLM_API_KEY)"]}, {"extraEnv": {"COPY": "$(HF_TOKEN)"}}])
def test_secret_variables_are_not_expanded_by_extras(overrides: dict[str, Any]) -> None:
    """What a stack adds to a pod does not bring a secret onto a command line or into another variable."""
    evaluation = check(environment(model(weights={"tokenKey": "hfToken"}, gateway={"apiKeySecret": "apiKey"}, **overrides)))
    assert [f for f in evaluation.findings if f.level == "error"]
