from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from disagg_serving.corrections import instruction, written
from disagg_serving.errors import Finding, Level, did_you_mean
from disagg_serving.phrases import Phrase, Spelling, either, join, move_places, parts_of, say, say_key, spell
from disagg_serving.place import Place
from disagg_serving.records import data_of
from factories import ROOT
from slots import named_in

PACKAGE = ROOT / "components/disagg_serving"
SAYING = [
    file
    for folder in ("rules", "planning", "forecast", "catalog", "load", "resources", "spec/validation.py")
    for file in ([PACKAGE / folder] if folder.endswith(".py") else sorted((PACKAGE / folder).rglob("*.py")))
    if file.name not in {"spec_args.py", "form.py", "write_back.py"} and not file.name.startswith(("config_", "hf_config"))
]
"""Modules that make findings, but for those with other texts: for docs, about keys of a config.json, or for a stack file."""


class Loud(Spelling):
    """Keys and places in capitals."""

    def key(self, key: Place) -> str:
        """The key."""
        return str(key).upper()

    def place(self, place: Place) -> str:
        """The place, marked as one."""
        return f"<{place}>".upper()

    def either(self, in_file: str, in_program: str) -> str:  # noqa: ARG002 (what is for files)
        """That of programs."""
        return in_program


def test_a_phrase_is_its_text_in_a_stack_file() -> None:
    """Whoever compares, sorts or prints a phrase sees the words for a stack file."""
    phrase = say("set {weights.s3} to {:.1f}{}, as {} has", 2.25, either(" in YAML", ""), Place.parse("models[0].name"))
    assert phrase == "set weights.s3 to 2.2 in YAML, as models[0].name has"
    assert hash(phrase) == hash(str(phrase))
    assert str(say("{{{}}}", 1)) == "{1}"


def test_another_reader_gets_other_keys_and_the_same_words() -> None:
    """Only slots are spelled anew: the same word outside of one is left alone, whatever phrase it was put into."""
    inner = join(" and ", [say_key("maxModelLen"), "maxModelLen", say("{} of {}", Place.parse("models[1]"), "tags")])
    assert spell(say("use {}{}", inner, either(" in YAML", "")), Loud()) == "use MAXMODELLEN and maxModelLen and <MODELS[1]> of tags"
    assert spell("maxModelLen", Loud()) == "maxModelLen"


@pytest.mark.parametrize(("template", "values"), [("{} and {}", (1,)), ("{}", (1, 2)), ("{tags}", (1,))])
def test_each_brace_has_its_value(template: str, values: tuple[int, ...]) -> None:
    """A value without a brace would be lost in silence."""
    with pytest.raises(ValueError, match="brace"):
        say(template, *values)


def test_places_move_and_words_do_not() -> None:
    """What is said of the second of two models that remain names the third of the file."""
    text = move_places(say("is that of {}, not of models[1]", Place.parse("models[1].name")), lambda place: Place(("models", 2, *place.steps[2:])))
    assert text == "is that of models[2].name, not of models[1]"
    assert move_places("models[1]", lambda _: Place()) == "models[1]"


def test_copies_and_json_are_plain_texts() -> None:
    """A phrase leaves the process as the text that it is."""
    phrase = say("use {maxModelLen}")
    for other in (pickle.loads(pickle.dumps(phrase)), copy.deepcopy(phrase), json.loads(json.dumps(phrase))):  # noqa: S301 (our own)
        assert (type(other), other) == (str, "use maxModelLen")
    found = data_of(Finding("x", Level.ERROR, "", phrase, say_key("maxModelLen"), fix=phrase))
    assert {type(value) for value in found.values()} <= {str, type(None)}


def test_suggestions_keep_their_keys() -> None:
    """Keys in values that are to be written, and a known key that is meant, are slots as well."""
    value = {"tensorParallel": 2, "tags": [{"maxModelLen": "maxModelLen"}]}
    assert instruction(value) == "use {tensorParallel: 2, tags: [{maxModelLen: maxModelLen}]}"
    assert spell(written(value), Loud()) == "{TENSORPARALLEL: 2, TAGS: [{MAXMODELLEN: maxModelLen}]}"
    assert spell(did_you_mean("maxModelLenn", [say_key("maxModelLen")]), Loud()) == "did you mean MAXMODELLEN?"
    assert isinstance(did_you_mean("a", ["a"]), Phrase)
    assert parts_of("a") == ("a",)


def sentences(file: Path) -> Iterator[str]:
    """Texts of several words in a module, but docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented and " " in node.value.strip():
            yield node.value


@pytest.mark.parametrize("file", SAYING, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_words_name_keys_in_braces_alone(file: Path) -> None:
    """A key in the words themselves would reach a Python program as YAML spells it."""
    for text in sentences(file):
        assert not named_in(re.sub(r"\{[^{}]*\}", "", text)), text
