"""What a finding suggests, done to the stack file, ends the finding and breaks nothing else; words and data of a suggestion are one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_input import CASES
from budgets import examples
from disagg_serving.catalog import Catalog
from disagg_serving.catalog.verdicts import every_option, verdict_of
from disagg_serving.corrections import corrected
from disagg_serving.errors import Finding, Level
from disagg_serving.place import Place
from disagg_serving.planning.command_line import OWNED
from disagg_serving.records import data_of
from disagg_serving.rules import Stage, rules
from disagg_serving.rules.evaluation import Evaluation, evaluate
from disagg_serving.rules.fixes import words
from factories import ROOT, aggregated, check, environment, existing_cluster, model, role
from generator import Generator
from hypothesis import given, settings
from hypothesis import strategies as st

RULES = {r.id for r in rules()}
OF_LAYOUTS = {r.id for r in rules() if r.stage is Stage.LAYOUT}
BLOCKING = {r.id for r in rules() if r.blocks_layout}
FORM = {"schema", "missing", "unknown-key"}
FOLDER = ROOT / "components/disagg_serving/rules/checks"
QUESTION = re.compile(r"did you mean [^?]* or [^?]*\?")
"""Names that are asked about, where several are meant as well: none of them is a correction."""
NAMES_VALUE = re.compile(r"\b\d|\w: ?\S|=\S|\b(true|false)\b")
COMMANDS = re.compile(r"`[^`]*`")
TYPES = ("p5.4xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")
CATALOG = Catalog()
VARIABLES = st.sampled_from(("NCCL_ALGO", "HF_HOME", "UCX_TLS", "NCCL_NET", "NCCL_DEBUG"))


def place(finding: Finding) -> tuple[str, str]:
    """A rule and where it speaks; entries of one list are one place."""
    return finding.id, re.sub(r"\[\d+\]$", "[]", finding.path)


def errors(result: Evaluation) -> Counter[tuple[str, str]]:
    """All errors, as places."""
    return Counter(place(f) for f in result.findings if f.level is Level.ERROR)


def assert_fixes_work(data: Any, before: Evaluation, base: Path = ROOT) -> int:
    """Every correction of every finding; returns how many there were."""
    tried, unread = 0, any(f.id not in RULES and f.level is Level.ERROR for f in before.findings)
    for finding in before.findings:
        assert_words_are_made_of_data(finding)
        for correction in finding.corrections:
            tried += 1
            after = evaluate(corrected(data, correction), base)
            left = [f for f in after.findings if place(f) == place(finding) and (f.level is Level.INFO) == (finding.level is Level.INFO)]
            there = sum(place(f) == place(finding) for f in before.findings)
            gone = len(left) < there if finding.path.endswith("]") else not left
            assert gone, (finding.sentence(), correction, [f.sentence() for f in left])
            new = errors(after) - errors(before)
            if finding.id not in RULES:  # behind a value that cannot be read may be others, which nobody could see
                new = Counter({p: n for p, n in new.items() if p[0] in FORM and p[1].startswith(finding.path)})
            elif finding.id in BLOCKING or unread:  # without a layout nobody could see what its rules say
                new = Counter({p: n for p, n in new.items() if p[0] not in OF_LAYOUTS})
            assert not new, (finding.sentence(), correction, new)
    return tried


def assert_words_are_made_of_data(finding: Finding) -> None:
    """A fix is what its corrections say and advice without values."""
    guesses = [str(correction[finding.path]) for correction in finding.corrections if finding.path in correction]
    rest = finding.fix.replace(f"did you mean {' or '.join(filter(None, [', '.join(guesses[:-1]), *guesses[-1:]]))}?", "", 1)
    for correction in finding.corrections:
        for text in (words(correction, Place.parse(finding.path)), f"did you mean {correction.get(finding.path)}?"):
            rest = rest.replace(text, "", 1)
    rest = QUESTION.sub("", rest)
    if not finding.id.startswith(("yaml", "nested-secret", "missing")):
        assert not NAMES_VALUE.search(COMMANDS.sub("", rest)), f"{finding.id}: {rest!r} of {finding.fix!r} names a value and is no correction"


@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.data, dict) and "config" not in c.data and not c.files], ids=lambda c: c.name)
def test_fixes_of_bad_input(case: Any) -> None:
    """Each suggestion of each known mistake."""
    assert_fixes_work(case.data, check(case.data))


BOUND = re.compile(r"(?:at most|at least) (\d+)\b|(\d+) or more|(\d+)")
CHOICE = re.compile(r"[\w.-]+(, [\w.-]+)*")


def permitted(finding: Finding) -> list[Any]:
    """Values that the allowed ones of a finding name, in the type of the value that stands there."""
    if not isinstance(finding.value, (int, float, str)) or isinstance(finding.value, bool):
        return []
    if found := BOUND.match(finding.allowed) if isinstance(finding.value, (int, float)) else None:
        listed = re.findall(r"\d+", finding.allowed) if CHOICE.fullmatch(finding.allowed) else [next(n for n in found.groups() if n)]
        return [int(n) for n in listed if int(n) <= 64 or len(listed) == 1]
    return finding.allowed.split(", ") if CHOICE.fullmatch(finding.allowed) and isinstance(finding.value, str) else []


@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.data, dict) and "config" not in c.data and not c.files], ids=lambda c: c.name)
def test_what_is_allowed_is_accepted(case: Any) -> None:
    """Each value that a rule says is allowed, put into the place, ends what that rule says about it."""
    for finding in check(case.data).findings:
        if finding.id in RULES and finding.level is Level.ERROR:
            for value in permitted(finding):
                after = check(corrected(case.data, {finding.path: value}))
                left = [f for f in after.findings if place(f) == place(finding) and f.level is Level.ERROR]
                assert not left, (finding.sentence(), value, [f.sentence() for f in left])


@st.composite
def tight(draw: st.DrawFn) -> dict[str, Any]:
    """Engines of all models of the catalogue on small and large instances, with short and long contexts."""
    name, instance = draw(st.sampled_from(sorted(CATALOG.models))), draw(st.sampled_from(TYPES))
    longest = CATALOG.models[name].context_length
    common = {
        "model": name,
        "maxModelLen": draw(st.integers(1, longest // 1024)) * 1024,
        "gpuMemoryUtilization": draw(st.sampled_from((0.5, 0.8, 0.9, 0.97))),
    }
    batch = draw(st.sampled_from((None, None, 131072)))
    options = {"instanceType": instance, **({"maxNumBatchedTokens": batch} if batch else {})}
    options |= {"expertParallel": True} if CATALOG.models[name].moe is not None and draw(st.booleans()) else {}
    options |= {"dataParallel": draw(st.sampled_from((1, 1, 2, 4)))} if "expertParallel" in options else {}
    sizes = st.sampled_from((1, 2, 3, 4, 8, 16, 24))
    options |= {"pipelineParallel": 2} if draw(st.integers(0, 5)) == 0 else {}
    engine = role(**options, tensorParallel=draw(sizes))
    if draw(st.booleans()):
        return environment(aggregated(**common, server=engine))
    other = draw(st.sampled_from((instance, instance, *TYPES)))
    return environment(model(**common, prefill=engine, decode=role(**{**options, "instanceType": other}, tensorParallel=draw(sizes))))


@st.composite
def odd(draw: st.DrawFn) -> dict[str, Any]:
    """One or two settings of a role, of a model or around it that some rule has something to say about."""
    of_role = {
        "cpu": st.sampled_from((0.5, 1, 60, 150, 500)),
        "memoryGiB": st.sampled_from((1, 7, 9, 21, 27, 60, 500, 1200, 5000)),
        "shmGiB": st.sampled_from((1, 19, 64, 300, 5000)),
        "ephemeralStorageGiB": st.sampled_from((20, 100, 20000, 99999)),
        "expertParallel": st.just(True),
        "maxNumSeqs": st.sampled_from((300, 9000)),
        "maxNumBatchedTokens": st.sampled_from((64, 8192)),
        "gpuMemoryUtilization": st.sampled_from((0.3, 0.98)),
        "replicas": st.sampled_from((2, 5, 9)),
        "nodeSelector": st.just({"a": "b"}),
        "capacity": st.sampled_from(
            (
                {"type": "spot"},
                {"nodes": 1},
                {"type": "reserved"},
                {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"] * 2, "nodes": 1},
                {"reservationIds": ["cr-0123456789abcdef0"]},
            )
        ),
    }
    of_model: dict[str, st.SearchStrategy[Any]] = {
        "engine": st.sampled_from(sorted(CATALOG.engines)),
        "kvCacheDtype": st.sampled_from(("fp8", "fp8_e5m2", "fp8_ds_mla")),
        "maxModelLen": st.sampled_from((1000, 10**6)),
        "speculative": st.sampled_from([{"method": m, "numSpeculativeTokens": 2} for m in ("mtp", "eagle3", "ngram")]),
        "extraArgs": st.sampled_from((["--port=1", "--seed=1"], ["-O3"], ["--all2all-backend=pplx", "--hf-overrides=x"])),
        "extraEnv": st.dictionaries(VARIABLES, st.sampled_from(("ib", "INFO")), max_size=2),
        "namespace": st.sampled_from(("default", "lws-system")),
        "gateway": st.sampled_from(
            (
                {"public": True},
                {"enabled": False, "public": True},
                {"routing": {"disaggregation": "prefixBased"}},
                {"routing": {"nonCachedTokens": 5}},
                {"routing": {"decode": [{"type": "token-load-scorer"}, {"type": "queue-scorrer"}, {"type": "decode-filter"}]}},
            )
        ),
        "weights": st.sampled_from(
            ({"mirror": True}, {"s3": {"bucket": "acme"}, "tokenKey": "hfToken"}, {"s3": {"bucket": "acme"}, "cache": "node"}, {"cache": "node"})
        ),
        "workload": st.just({"inputTokens": 2000, "outputTokens": 500, "requestsPerSecond": 3}),
    }
    around: dict[str, st.SearchStrategy[Any]] = {
        "cluster": st.sampled_from(({"kubernetesVersion": "1.30"}, {"serviceCidr": "10.0.0.0/20"}, {"partition": "aws-cn"})),
        "nodePools": st.sampled_from(({"expireAfterHours": 600}, {"tags": {"kubernetes.io/cluster/a": "b"}})),
        "networkPolicy": st.sampled_from(({"enabled": False, "vpcCidrs": ["10.0.0.0/16"]}, {"vpcCidrs": ["10.9.0.0/16"]})),
        "accept": st.just({"extra-env": "because it is needed"}),
    }

    def some(fields: dict[str, Any], most: int) -> dict[str, Any]:
        keys = draw(st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True))
        return {key: draw(fields[key]) for key in keys}

    name = draw(st.sampled_from(("llama-3.3-70b-instruct-fp8", "qwen3-235b-a22b-instruct-fp8", "gpt-oss-120b")))
    size = draw(st.sampled_from((2, 4, 8)))
    options = {"model": name, **some(of_model, 1)}
    one = draw(st.sampled_from((model, aggregated)))
    sides = ("prefill", "decode") if one is model else ("server",)
    made = one(**options, **{side: role(tensorParallel=size, **(some(of_role, 2) if side != "prefill" else {})) for side in sides})
    if draw(st.integers(0, 4)) == 0:
        return existing_cluster(made, autoMode=draw(st.booleans()), kubeconfig=None, name="c")
    return environment(made, **some(around, 1))


@pytest.mark.hypothesis
def test_every_correction_removes_its_finding() -> None:
    """Whatever is suggested for whatever input: the finding is gone, no new error is there, and many rules were tried."""
    seen: Counter[str] = Counter()

    @given(tight() | odd() | Generator(8).environment())
    @settings(max_examples=examples(60))
    def holds(data: dict[str, Any]) -> None:
        result = check(data)
        seen.update(f.id for f in result.findings if f.corrections)
        assert_fixes_work(data, result)

    holds()
    assert len(seen) > 20, seen


BRACES = dict.fromkeys(map(ord, "{}"))


def faults(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.expr]]:
    """Expressions that stand for advice in a module of rules, each with its function."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "Fault"):
            yield from ((function, arg) for arg in call.args[4:5])
            yield from ((function, k.value) for k in call.keywords if k.arg in {"advice", "otherwise"})


def texts(tree: ast.Module, function: ast.FunctionDef, expression: ast.expr) -> Iterator[str]:
    """The constants that an expression can be; fails for anything that is put together of values."""
    match expression:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else " 0 " for p in parts)  # a value, which only a command may hold
        case ast.Call(func=ast.Name(id="say" | "either")):
            yield from (text.translate(BRACES) for value in expression.args for text in texts(tree, function, value))
        case ast.Call(func=ast.Name(id="did_you_mean") | ast.Attribute(value=ast.Name(id="Place"))) | ast.Attribute(attr="fix" | "advice"):
            return  # a key's name, a place, and the words of a finding or of another fault
        case _:
            for value in choices(tree, function, expression):
                yield from texts(tree, function, value)


def choices(tree: ast.Module, function: ast.FunctionDef, expression: ast.expr) -> list[ast.expr]:
    """The expressions that another one may come to."""
    match expression:
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.BoolOp(values=values) | ast.Dict(values=values):
            return values
        case ast.Subscript(value=value):
            return [value]
        case ast.Attribute(attr="instead"):  # data of the verdicts
            return [ast.Constant(about.instead) for name in every_option() if (about := verdict_of(name)) is not None]
        case ast.Name(id=name):
            found = [v for scope in (function, tree) for v in assigned(scope, name)]
            assert found, f"{function.name}: {name} is not to be found"
            return found
    pytest.fail(f"{function.name}: advice is made of values: {ast.unparse(expression)}; use ways")


def assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """Values that a name gets in a function or module, or in the module that it comes from."""
    if name == "OWNED":
        yield from map(ast.Constant, OWNED.values())
    for node in ast.walk(scope) if isinstance(scope, ast.FunctionDef) else ast.iter_child_nodes(scope):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from (v for t, v in zip(target.elts, node.value.elts, strict=True) if isinstance(t, ast.Name) and t.id == name)


# corrections are places in a stack file; what programs.py says is for a program's code, which nothing here can change and try
@pytest.mark.parametrize("file", sorted(f for f in FOLDER.glob("*.py") if f.name != "programs.py"), ids=lambda f: f.name)
def test_advice_names_no_value(file: Path) -> None:
    """What is not tried says nothing that could be tried: advice is a constant without a setting's value."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for function, expression in faults(tree):
        for text in texts(tree, function, expression):
            assert not NAMES_VALUE.search(COMMANDS.sub("", text)), f"{function.name}: {text!r} names a value; use ways"


def test_a_calibrated_engine_is_not_proposed_to_itself() -> None:
    """A record that leaves too little room is answered with other engines, not with the same one without its record."""
    engine = role(calibration={"weightsGiB": 34.2, "kvCacheGiB": 5})
    (found,) = [f for f in check(environment(aggregated(maxModelLen=131072, server=engine))).findings if f.id == "context-fit"]
    assert "tensorParallel 2 on p5.48xlarge" not in found.sentence()
    assert "tensorParallel 4 on p5.48xlarge" in found.sentence()


def test_corrections_are_data_for_machines() -> None:
    """The JSON of a finding has its corrections as places and values; findings without any have no such key."""
    found = data_of(check(environment(model(decode=role(tensorParallel=3)))).findings)
    assert {"models[0].decode.tensorParallel": 2} in next(f for f in found if f["id"] == "tensor-parallel")["corrections"]
    assert "corrections" not in next(f for f in found if f["id"] == "image-unverified")


@pytest.mark.parametrize(
    ("correction", "at", "text"),
    [
        ({"models[0].decode.tensorParallel": 4}, "models[0].decode.tensorParallel", "use 4"),
        ({"models[0].prefill.tensorParallel": 4}, "models[0].decode.tensorParallel", "set prefill.tensorParallel: 4"),
        ({f"models[0].{r}.tensorParallel": 4 for r in ("prefill", "decode")}, "models[0].decode.tensorParallel", "use 4 in both roles"),
        ({"models[0].kvCacheDtype": "fp8"}, "models[0].maxModelLen", "set kvCacheDtype: fp8"),
        ({"cluster.kubernetesVersion": "1.34"}, "cluster.kubernetesVersion", 'use "1.34"'),
        ({"models[0].gateway.public": None}, "models[0].gateway.public", "remove it"),
        ({"networkPolicy.enabled": True}, "models[0].gateway.public", "set networkPolicy.enabled: true"),
        (
            {"models[0].server.instanceType": "p5en.48xlarge", "models[0].server.tensorParallel": 8, "models[0].server.calibration": None},
            "models[0].maxModelLen",
            "use tensorParallel 8 on p5en.48xlarge without calibration in server",
        ),
    ],
)
def test_words(correction: dict[str, Any], at: str, text: str) -> None:
    """A correction reads like an instruction at the place where the reader is."""
    assert words(correction, Place.parse(at)) == text
