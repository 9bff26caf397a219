"""The report on newer versions, at the boundary of HTTP: answers have the form that the indexes give."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import responses
from factories import ROOT

from scripts import outdated
from scripts.outdated import DOCS, GITHUB, GO, NPM, PYPI, Answer, Pin, answers, find_pins, report
from scripts.versions import pinned

INDEX, PROXY, REGISTRY = "https://index.example/simple/", "https://proxy.example", "https://registry.example"


@pytest.fixture(autouse=True)
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[responses.RequestsMock]:
    """Indexes of which a test says the answers; whoever asks anything else gets a refused connection."""
    monkeypatch.setenv("PIP_INDEX_URL", INDEX)
    monkeypatch.setenv("GOPROXY", f"{PROXY},direct")
    monkeypatch.setenv("npm_config_registry", f"{REGISTRY}/")
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock


def package(mock: responses.RequestsMock, name: str, *files: tuple[str, str, bool]) -> None:
    """A page of a Python index in its JSON form: version, time, and whether it is yanked."""
    data: dict[str, Any] = {
        "meta": {"api-version": "1.1"},
        "name": name,
        "versions": [version for version, _, _ in files],
        "files": [
            {
                "filename": f"{name}-{version}-py3-none-any.whl",
                "url": f"https://files.example/{name}-{version}-py3-none-any.whl",
                "hashes": {},
                "upload-time": time,
                "yanked": yanked,
                "size": 1,
            }
            for version, time, yanked in files
        ],
    }
    mock.get(f"{INDEX}{name}/", json=data, content_type="application/vnd.pypi.simple.v1+json")


def pin(index: str, version: str = "1.0.0", asked: str = "part", **rest: Any) -> Pin:
    """A pin of what an index is asked for."""
    return Pin("part", version, index, asked, "a file", **rest)


def test_python_package(web: responses.RequestsMock) -> None:
    """The newest release counts: neither one before a release, nor one that was taken back, nor the one that was uploaded last."""
    ten, nine = ("1.10.0", "2026-03-04T05:06:07.123456Z", False), ("1.9.1", "2026-05-01T00:00:00Z", False)
    package(web, "part", ten, nine, ("2.0.0rc1", "2026-06-01T00:00:00Z", False), ("1.11.0", "2026-07-01T00:00:00Z", True))
    assert outdated.ask_python("part") == Answer("1.10.0", "2026-03-04")
    package(web, "counted", ("2026.1", "2026-01-01T00:00:00Z", False), ("1!1.0", "2026-02-01T00:00:00Z", False))
    assert outdated.ask_python("counted") == Answer("1!1.0", "2026-02-01"), "another way to count"
    package(web, "built", ("1769699379!11.6.0", "2026-01-29T15:44:11Z", False), ("1769699998!10.1.0", "2026-01-29T15:39:41Z", False))
    assert outdated.ask_python("built") == Answer("1769699379!11.6.0", "2026-01-29"), "a later build of an older release is no newer one"
    package(web, "early", ("1.0a1", "2026-06-01T00:00:00Z", False))
    assert outdated.ask_python("early").why == "it has no release"
    web.get(f"{INDEX}other/", status=404)
    assert outdated.ask_python("other").why == "it has no such package"
    web.get(f"{INDEX}broken/", status=503)
    assert outdated.ask_python("broken").why == "it answers 503"


def test_go_module(web: responses.RequestsMock) -> None:
    """Versions are compared as such and not as text; releases alone count, and none from before the module was one."""
    base = f"{PROXY}/github.com/!kedacore/keda/v2/@v"
    web.get(f"{base}/list", body="v2.9.0\nv2.21.0\nv2.22.0-rc.1\nv3.0.0+incompatible\n")
    web.get(f"{base}/v2.21.0.info", json={"Version": "v2.21.0", "Time": "2026-09-23T15:57:52Z"})
    assert outdated.ask_go("github.com/Kedacore/keda/v2") == Answer("v2.21.0", "2026-09-23")
    back = f"{PROXY}/a.example/back/@v"
    web.get(f"{back}/list", body="v1.99.0\nv0.315.0\nv0.316.0\n")
    web.get(f"{back}/v1.99.0.info", json={"Version": "v1.99.0", "Time": "2022-04-14T18:44:55Z"})
    web.get(f"{back}/v0.316.0.info", json={"Version": "v0.316.0", "Time": "2026-11-05T15:06:51Z"})
    assert outdated.ask_go("a.example/back") == Answer("v0.316.0", "2026-11-05"), "v1.99.0 was before"
    web.get(f"{PROXY}/a.example/m/@v/list", body="\n")
    assert outdated.ask_go("a.example/m").why == "it has no release"
    web.get(f"{PROXY}/b.example/m/@v/list", status=403, body="This module version is not available.")
    assert outdated.ask_go("b.example/m").why == "it answers 403"


def test_npm_package(web: responses.RequestsMock) -> None:
    """A scoped name is one path segment."""
    data = {"dist-tags": {"latest": "3.277.0", "dev": "4.0.0"}, "time": {"3.277.0": "2026-11-20T10:00:00.000Z"}}
    web.get(f"{REGISTRY}/@pulumi%2Fpulumi", json=data)
    assert outdated.ask_npm("@pulumi/pulumi") == Answer("3.277.0", "2026-11-20")
    web.get(f"{REGISTRY}/other", status=404)
    assert outdated.ask_npm("other").why == "it answers 404"


@pytest.mark.parametrize(("tag", "version"), [("v6.1.0", "6.1.0"), ("4.5.3-4.8.3", "4.8.3"), ("keda-2.21.2", "2.21.2"), ("nightly", "")])
def test_release_of_a_repository(web: responses.RequestsMock, tag: str, version: str) -> None:
    """Tags are written in many ways; the chart's version of dcgm-exporter stands last in its."""
    web.get(outdated.RELEASES.format("o/r"), json={"tag_name": tag, "published_at": "2026-11-01T00:00:00Z"})
    assert outdated.ask_github("o/r") == (Answer(version, "2026-11-01") if version else Answer(why="its newest release is nightly"))


def test_report(web: responses.RequestsMock) -> None:
    """A row for each pin that has a newer version, with its day and whether the package's own range allows it; the others are counted."""
    package(web, "part", ("2.0.0", "2026-03-04T05:06:07Z", False))
    package(web, "calm", ("1.0", "2026-03-04T05:06:07Z", False))
    web.get(outdated.RELEASES.format("o/r"), status=403)
    rest = [pin(GITHUB, asked="o/r"), pin(DOCS, asked="a page")]
    lines, asked = report([pin(PYPI, allowed=">=1,<2"), pin(PYPI, asked="calm"), *rest])
    assert asked
    assert [line.split() for line in lines[:2]] == [
        ["what", "pinned", "newest", "of", "in"],
        ["part", "1.0.0", "2.0.0", "2026-03-04", "a", "file", "outside", ">=1,<2"],
    ]
    assert lines[2:] == ["1 pins are the newest, 1 are not", "part 1.0.0 (a file): it answers 403", "part 1.0.0 (a file): see a page"]


def test_without_network(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no index answers, each says so once, nothing is called new or newest, and the exit code tells."""
    assert outdated.main() == 1
    told = capsys.readouterr()
    assert told.err == "no network: nothing was compared\n"
    assert told.out.splitlines()[0] == "0 pins are the newest, 0 are not"
    assert told.out.count("cannot be asked (ConnectionError)") == len({p.index for p in find_pins()} - {DOCS}) >= 3
    assert "pulumi-aws" in told.out


def test_one_answer_is_missing(web: responses.RequestsMock) -> None:
    """A connection that breaks in between leaves the other answers."""
    package(web, "part", ("1.0.0", "2026-03-04T05:06:07Z", False))
    web.get(f"{INDEX}other/", body=requests.ConnectionError())
    found = answers(PYPI, ["part", "other", "part"])
    assert {name: (a.version, a.why) for name, a in found.items()} == {"part": ("1.0.0", ""), "other": ("", "ConnectionError")}


def test_missing_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go or npm their indexes have no address, which is said and ends nothing."""
    monkeypatch.delenv("GOPROXY")
    monkeypatch.setenv("PATH", "")
    lines, asked = report([pin(GO)])
    assert lines[1:] == ["the Go module proxy cannot be asked (go is not installed); pins that are not compared: part"]
    assert not asked
    monkeypatch.setenv("GOPROXY", "off")
    assert "has no address for it" in report([pin(GO)])[0][1] or "is not installed" in report([pin(GO)])[0][1]


def test_every_kind_of_pin_is_found() -> None:
    """Requirements of all kinds, the catalogue, what the bench is built from, and actions that are pinned by commit."""
    found = {(p.index, p.name): p for p in find_pins()}
    assert found[PYPI, "pulumi-eks"].allowed == "<5,>=4.4"
    assert found[PYPI, "zizmor"].where == "requirements/dev.txt"
    assert found[PYPI, "hatchling"].where == "requirements/release.txt"
    assert found[PYPI, "playwright"].where == "requirements/browser.txt"
    assert found[PYPI, "engine vllm-0.33.0-efa"].asked == "vllm"
    assert found[GITHUB, "router llm-d-router-0.10.0"].asked == "llm-d/llm-d-router"
    assert found[GITHUB, "LeaderWorkerSet chart"].asked == "kubernetes-sigs/lws"
    assert found[GITHUB, "DCGM exporter chart"].asked == "NVIDIA/dcgm-exporter"
    assert found[GO, "etcd"].asked == "go.etcd.io/etcd/server/v3"
    assert found[GITHUB, "actions/checkout"].version == "6.0.2"
    assert (PYPI, "certifi") not in found, "what follows from other pins is not for a person to move"


def test_npm_pins_are_found(tmp_path: Any) -> None:
    """Exact versions of package.json files in examples; folders and ranges are no pins, and installed packages are not looked at."""
    (tmp_path / "examples/x/node_modules/y").mkdir(parents=True)
    text = '{"dependencies": {"a": "1.2.3", "b": "^1.0.0", "c": "file:c"}, "devDependencies": {"d": "5.9.3"}}'
    for folder in ("x", "x/node_modules/y"):
        (tmp_path / "examples" / folder / "package.json").write_text(text)
    assert [(p.name, p.version, p.index) for p in outdated._npm_packages(tmp_path)] == [("a", "1.2.3", NPM), ("d", "5.9.3", NPM)]


def test_build_tools_are_pinned_once() -> None:
    """What pip takes to build the package from a checkout is what builds a release."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    release = pinned(ROOT / "requirements/release.txt")
    assert required == [f"{name}=={release[name]}" for name in ("hatchling", "hatch-vcs")]
