"""What code, data and pages give as a source can be opened: a public address, or a file of this project."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from disagg_serving import pins
from disagg_serving.rules import Rule, rules
from disagg_serving.yaml_io import read_yaml
from factories import ROOT

FOLDERS = ("components", "scripts", "engine", "bench", "policy", "docs", "tests/data")
TEXTS = {".py", ".md", ".yaml", ".toml", ".csv", ".go", ".sh"}
ADDRESS = re.compile(r"https://[^\s()\"'<>\]]+")
FILE = re.compile(r"(?<![\w/.{}*<>-])[\w-][\w./-]*\.[a-z]{2,4}\b")
NAMED_BY_OTHERS = {"default-counters.csv", "etc/dcgm-exporter/default-counters.csv", "tokens.csv", "plan.md"}
"""Files that a program reads or writes where it runs. They are no sources."""


@cache
def _files() -> tuple[Path, ...]:
    found = (f for folder in FOLDERS for f in sorted((ROOT / folder).rglob("*")) if f.suffix in TEXTS)
    return tuple(f for f in found if not any(part.startswith((".", "__pycache__")) for part in f.relative_to(ROOT).parts))


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _of_project(name: str, near: Path = ROOT) -> bool:
    """Whether a name is that of a file here: from the root, from the folder of the text, or the end of the path of one."""
    return any((start / name).is_file() for start in (ROOT, near, ROOT / "components/disagg_serving", ROOT / "docs")) or any(
        f.as_posix().endswith(f"/{name}") for f in _files()
    )


def _opens(source: str) -> bool:
    return bool(ADDRESS.search(source)) or any((ROOT / name).is_file() for name in FILE.findall(source))


def _sources_in(data: Any) -> Iterator[str]:
    """Every value of a key `source`, at any depth."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if key == "source":
            yield from [value] if isinstance(value, str) else value
        else:
            yield from _sources_in(value)


def _of_data() -> Iterator[tuple[str, str]]:
    for file in _files():
        where = file.relative_to(ROOT).as_posix()
        if file.suffix == ".yaml" and "/catalog/" in where:
            yield from ((where, source) for source in _sources_in(read_yaml(file)))
        if file.suffix == ".yaml" and where.startswith("tests/data/models/"):
            yield from ((where, source) for source in _sources_in(read_yaml(file)))
        if file.suffix == ".csv":
            lines = (line for line in _text(file).splitlines() if not line.startswith("#"))
            yield from ((f"{where} {row['id']}", row["source"]) for row in csv.DictReader(lines))
    yield from ((name, pin.source) for name, pin in vars(pins).items() if isinstance(pin, pins.Pin))


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.id)
def test_a_rule_names_what_can_be_opened(rule: Rule) -> None:
    """A reader of a finding gets to the fact behind it: by an address, or in a file of the project where the rule is our choice or measurement."""
    assert _opens(rule.reference)
    missing = [name for name in FILE.findall(ADDRESS.sub("", rule.reference)) if not _of_project(name)]
    assert missing == []
    assert rule.url is None or rule.url[-1] not in ".,;:)"


def test_data_name_what_can_be_opened() -> None:
    """Every source of catalogue, prices, overheads, pins and test cases is an address or a file of the project, not a title to search for."""
    found = list(_of_data())
    assert len(found) > 150
    assert [where for where, source in found if not _opens(source)] == []


@pytest.mark.parametrize("text", ["planning.md 3.4", "the data sheet, from memory", "Kubernetes: API conventions", "vllm#50047", "docs/none.md"])
def test_what_nobody_can_open_is_refused(text: str) -> None:
    """Titles, short names of issues, and files that are not here are no sources."""
    assert not _opens(text)


def test_files_on_github_have_a_release() -> None:
    """A link to a branch shows another text tomorrow: files are linked at a tag or a commit."""
    floating = re.compile(r"github\.com/[\w.-]+/[\w.-]+/(?:blob|tree)/(?:main|master)/")
    assert [f.relative_to(ROOT).as_posix() for f in _files() if floating.search(_text(f))] == []


def test_no_page_or_table_is_cited_that_is_not_here() -> None:
    """A name such as notes.md or cases.csv is that of a file of the project, or stands beside the address where it is."""
    lost = []
    for file in _files():
        for number, line in enumerate(_text(file).splitlines(), 1):
            if ADDRESS.search(line):
                continue
            names = FILE.findall(re.sub(r"\{[A-Z_]+\}\S*", "", line))
            cited = {n for n in names if n.endswith((".md", ".csv"))} - NAMED_BY_OTHERS
            lost += [f"{file.relative_to(ROOT)}:{number}: {n}" for n in cited if not _of_project(n, file.parent)]
    assert lost == []


def test_nothing_is_from_memory() -> None:
    """A figure that somebody remembers has no source."""
    unsaid = re.compile(r"from memory|recalled, not|see section \d", re.IGNORECASE)
    assert [f.relative_to(ROOT).as_posix() for f in _files() if unsaid.search(_text(f))] == []
