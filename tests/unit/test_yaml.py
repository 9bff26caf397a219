"""Files that people write: read as Pulumi reads them, and within limits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.errors import SpecError
from disagg_serving.spec.stack_file import read_project
from disagg_serving.yaml_io import MAX_BYTES, Marks, read_yaml
from disagg_serving.yaml_nodes import DEEPEST, MOST_NODES
from hypothesis import given
from hypothesis import strategies as st
from yaml_values import OURS, READ, REFUSED

LIMIT_SECONDS = 1.0


def file_of(folder: Path, text: str | bytes) -> Path:
    """A file with this content."""
    file = folder / "some.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize("written", READ)
def test_values_are_those_of_pulumi(written: str, tmp_path: Path) -> None:
    """A plan is made of the same values as the deployment; `tests/live/test_yaml.py` asks Pulumi for them."""
    assert read_yaml(file_of(tmp_path, f"k: {written}\n")) == {"k": READ[written]}


@pytest.mark.parametrize("written", [*REFUSED, *OURS])
def test_what_is_refused_has_a_line_and_a_column(written: str, tmp_path: Path) -> None:
    """Also where PyYAML's constructors would raise KeyError or AttributeError, and as the catalogue's or the project's own file."""
    text = f"# a file\nk: {written}\n"
    with pytest.raises(SpecError, match=r"^some\.yaml:[23]:\d+: is not valid YAML: \w.*; correct the line$"):
        read_yaml(file_of(tmp_path, text))
    (tmp_path / "Pulumi.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"^Pulumi\.yaml:[23]:"):
        read_project(tmp_path / "Pulumi.yaml")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"models/own\.yaml: own\.yaml:[23]:"):
        _ = load_catalog(["."], tmp_path).models["own"]


def bomb(depth: int, use: str) -> str:
    """Aliases of aliases, which stand for ten to the power of `depth` values."""
    lists = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join(["a0: &a0 [x]", *lists, use])


MANY: dict[str, str | bytes] = {
    "flow lists without end": "a: " + "[" * 400_000,
    "block lists without end": "- " * 300_000,
    "mappings without end": "{" * 100_000,
    "keys of keys": "? " * 300_000,
    "numbers": "a: [" + "1," * 450_000 + "]",
    "keys": "\n".join(f"k{i}: 1" for i in range(80_000)),
    "empty lists": "[" + "[]," * 250_000 + "]",
    "anchors": "a: [" + ",".join(f"&a{i} 1" for i in range(80_000)) + "]",
    "a bomb": bomb(20, "b: *a19"),
    "a bomb as key": bomb(20, "? *a19\n: 1"),
    "a bomb in a key": bomb(20, "? [*a19, *a19]\n: 1"),
    "a bomb that is merged": bomb(20, "b: {<<: *a19}"),
    "merges": "\n".join(["x: &x {" + ",".join(f"k{i}: 1" for i in range(2000)) + "}", *(f"m{i}: {{<<: *x}}" for i in range(2000))]),
    "merges of merges": "\n".join(["m0: &m0 {k: 1}", *(f"m{i}: &m{i} {{<<: *m{i - 1}, k{i}: 1}}" for i in range(1, 2000))]),
    "digits of base 60": "name: 1" + ":1" * 450_000,
    "digits": "name: " + "1" * 900_000,
    "hexadecimal digits": "name: 0x" + "f" * 900_000,
    "digits with exponent": "name: " + "1" * 400_000 + "e" + "1" * 400_000,
    "a date of digits": "name: 2027-" + "1" * 900_000,
    "a long tag": "a: !!" + "x" * 900_000 + " 1",
    "a long alias": "a: *" + "x" * 900_000,
    "tags of their own": "%TAG ! tag:x,2000:\n" * 20_000 + "---\na: 1",
    "quotes without end": 'a: "' + "\n" * 900_000,
    "colons": "a: " + "b: " * 200_000,
    "too many bytes": "#" * (MAX_BYTES + 1),
    "half a character": b"a: \xff\xfe\xfa",
    "not of YAML": "a: \x00",
    "two documents": "a: 1\n---\nb: 1\n",
}


@pytest.mark.parametrize("name", MANY)
def test_no_file_takes_long(name: str, tmp_path: Path) -> None:
    """A second at most, whatever the file stands for; what is beyond a limit is said with line and column."""
    file = file_of(tmp_path, MANY[name])
    before = time.process_time()
    try:
        read_yaml(file)
    except SpecError as problem:
        (found,) = problem.findings
        assert found.id == "yaml"
        assert found.path.startswith("some.yaml:")
        assert len(found.sentence()) < 300
    else:
        assert name in {"digits of base 60", "a date of digits"}, "refused by nobody"
    assert time.process_time() - before < LIMIT_SECONDS


def test_limits_are_far_from_what_people_write(tmp_path: Path) -> None:
    """Up to the limits files are read: depth, values, and aliases counted as what they repeat."""
    assert read_yaml(file_of(tmp_path, "[" * DEEPEST + "]" * DEEPEST))
    assert len(read_yaml(file_of(tmp_path, "[" + "1," * (MOST_NODES - 1) + "]"))) == MOST_NODES - 1
    with pytest.raises(SpecError, match=f"more values than {MOST_NODES}"):
        read_yaml(file_of(tmp_path, "[" + "1," * MOST_NODES + "]"))
    with pytest.raises(SpecError, match=f"deeper than {DEEPEST}"):
        read_yaml(file_of(tmp_path, "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)))
    half = "[" * (DEEPEST // 2)
    with pytest.raises(SpecError, match=f"deeper than {DEEPEST}"):
        read_yaml(file_of(tmp_path, f"a: &a {half}{half.replace('[', ']')}\nb: {half}*a{half.replace('[', ']')}"))


def test_a_fault_repeats_no_secret(tmp_path: Path) -> None:
    """A key, a tag or an alias may be a token at the wrong place."""
    token = "hf_" + "Ab1" * 8
    for text in (f"{token}: 1\n{token}: 2\n", f"a: *{token}\n", f"a: !{token} 1\n"):
        with pytest.raises(SpecError, match="not shown") as refused:
            read_yaml(file_of(tmp_path, text))
        assert "Ab1" not in str(refused.value)


TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="\ufeff"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
KEYS = TEXTS.filter(lambda key: key != "<<")
DATA = st.recursive(st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@pytest.mark.hypothesis
@given(data=DATA)
def test_json_is_read_as_what_it_is(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A program that writes JSON gets back what it wrote: each text in quotes is that text, each number that number."""
    file = tmp_path_factory.mktemp("yaml") / "some.yaml"
    file.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    assert read_yaml(file) == data


def leaves(node: Any) -> Iterator[Any]:
    """All values that stand in plain data."""
    for one in node.values() if isinstance(node, dict) else node:
        yield one
        if isinstance(one, (dict, list)):
            yield from leaves(one)


def test_an_alias_is_one_object_and_its_place_where_the_anchor_is(tmp_path: Path) -> None:
    """What aliases repeat takes no memory again."""
    file = file_of(tmp_path, "a: &a [1]\nb: [*a, *a]\n")
    data = read_yaml(file)
    assert len({id(one) for one in leaves(data) if one == [1]}) == 1
    assert Marks(file) is not None
