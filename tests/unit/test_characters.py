"""Characters that nobody sees: refused where people write them, written out where the program prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from disagg_serving.catalog.entries import Model
from disagg_serving.characters import hidden_in, lookalike_in, printed
from disagg_serving.cli.main import main
from disagg_serving.errors import SpecError
from disagg_serving.place import Place
from disagg_serving.report.files import INDEX, write_files
from disagg_serving.spec.validation import parse
from factories import aggregated, check, environment
from text_places import PLACES, WHOLE

HIDDEN = (
    "\0",
    "\x1b[2J",
    "\x7f",
    "\x9b",
    "\u200b",
    "\u200e",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ufeff",
    "\u00ad",
    "\u3164",
    "\ufe0f",
    "\U000e0041",
    "\ud800",
)


@pytest.mark.parametrize("place", PLACES, ids=lambda steps: str(Place(steps)))
def test_hidden_characters_are_refused_everywhere(place: tuple[str | int, ...]) -> None:
    """Whatever field it is: no argument, name, variable or tag holds one, and the finding shows none."""
    for n, sign in enumerate(HIDDEN):
        data = deepcopy(WHOLE)
        before = str(Place(place).read(data))
        Place(place).write(data, before + sign + "x" if n % 2 else before[:2] + sign + before[2:])
        found = [f for f in check(data).findings if f.id == "characters"]
        assert [f.path for f in found] == [str(Place(place))], repr(sign)
        assert found[0].sentence().isprintable()


@pytest.mark.parametrize(("field", "text"), [("repository", "Qwеn/Qwen3-32B"), ("repository", "Qwen/é"), ("servedModelName", "ｑwen")])  # noqa: RUF001
def test_names_are_of_ascii(field: str, text: str) -> None:
    """A Cyrillic or fullwidth letter would name another model than the reviewer reads."""
    assert [f.path for f in check(environment(aggregated(**{field: text}))).findings if f.id == "characters"] == [f"models[0].{field}"]


def test_texts_for_people_may_be_of_any_language() -> None:
    """Tags, reasons and variables may; a word of two scripts may not."""
    data = environment(aggregated(extraEnv={"TEXT": "日本語 und Größe"}), network={"zones": ["us-east-1a"], "tags": {"équipe": "Команда"}})
    assert [f for f in check(data).findings if f.id == "characters"] == []
    data["network"]["tags"]["équipe"] = "Teаm"  # noqa: RUF001
    assert [f.path for f in check(data).findings if f.id == "characters"] == ["network.tags.équipe"]
    assert hidden_in("a\nb\tc", lines=True) == ""
    assert lookalike_in("Größe 日本語") == ""


def test_catalogue_entries_are_held_to_the_same() -> None:
    """A repository of a catalogue entry reaches the same argument."""
    with pytest.raises(SpecError, match=r"repository: .*holds U\+200B"):
        parse(Model, {"id": "m", "repository": "acme/m\u200b"})


def test_what_is_printed_holds_nothing_raw() -> None:
    """It reads as the same text from JSON, and colours of our own stay."""
    text = "a\x1b]0;x\x07\x9b\u202e\U000e0041é\n"
    assert printed(text) == "a\\u001b]0;x\\u0007\\u009b\\u202e\\udb40\\udc41é\n"
    for sign in HIDDEN:
        data = json.dumps({"a": f"x{sign}"}, ensure_ascii=False)
        assert json.loads(printed(data)) == {"a": f"x{sign}"}
        assert printed(data).encode().isascii()
    assert printed("\x1b[31mred\x1b[0m", styled=True) == "\x1b[31mred\x1b[0m"
    assert "\x1b" not in printed("\x1b[31mred") + printed("\x1b[2J\x1b]0;x", styled=True)


def test_commands_print_nothing_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files, of stacks and of folders, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n", encoding="utf-8")
    (tmp_path / "Pulumi.\x1b]0;PWN\x07.yaml").write_text("config: {}\n", encoding="utf-8")
    for command in (
        ["check", "nope"],
        ["check", "no\x1b[2J.yaml"],
        ["render", "\x1b[2J", "-o", "out"],
        ["catalog", "models", "--catalog-dir", "\x1b[2J"],
    ):
        assert main(command) in {1, 2}
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err


# ---- files ---------------------------------------------------------------------------------------------------------------------------------

CONFIG_MAPS = [{"kind": "ConfigMap", "metadata": {"name": f"m{i}"}} for i in range(3)]


def test_a_rendering_follows_no_link(tmp_path: Path) -> None:
    """A link in the folder is replaced; what it points to stays, and so does what a forged index names."""
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    victim.write_text("precious", encoding="utf-8")
    (out / "01-configmap-m0.yaml").symlink_to(victim)
    (out / "own.yaml").write_text("mine", encoding="utf-8")
    (out / INDEX).write_bytes(b"\xff\xfe\n../victim\nown.yaml\n\0\n99-configmap-old.yaml\n")
    (out / "99-configmap-old.yaml").write_text("old", encoding="utf-8")
    write_files(CONFIG_MAPS, out)
    assert victim.read_text(encoding="utf-8") == "precious"
    assert {f.name for f in out.iterdir()} == {INDEX, "own.yaml", *(f"0{i + 1}-configmap-m{i}.yaml" for i in range(3))}
    assert not any(f.is_symlink() for f in out.iterdir())


@pytest.mark.parametrize("at", range(1, 9))
def test_a_rendering_that_ends_early_leaves_the_last_one(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at any write keeps the old files whole; after a kill between renames the next run removes what is left."""
    write_files(CONFIG_MAPS, tmp_path)
    old = {f.name: f.read_text(encoding="utf-8") for f in tmp_path.iterdir()}
    new = [{"kind": "ConfigMap", "metadata": {"name": f"n{i}"}} for i in range(2)]
    replace, calls = Path.replace, []

    def failing(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == at:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    failed = False
    try:
        write_files(new, tmp_path)
    except OSError:
        failed = True
    monkeypatch.undo()
    if failed:
        left = {f.name: f.read_text(encoding="utf-8") for f in tmp_path.iterdir() if f.name != INDEX}
        assert old.keys() - {INDEX} <= left.keys() or len(calls) > 5
    write_files(new, tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {INDEX, "01-configmap-n0.yaml", "02-configmap-n1.yaml"}


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Loops of links, pipes that nobody writes to and folders end with a sentence and 1 or 2, wherever a file is read."""
    monkeypatch.chdir(tmp_path)
    for folder in (".git", "stacks", "cat/models", "m", "pipe"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\n", encoding="utf-8")
    for loop in ("loop.yaml", "dir", "stacks/Pulumi.l.yaml", "m/config.json", "cat/models/q.yaml"):
        (tmp_path / loop).symlink_to(tmp_path / loop)
    for pipe in ("pipe/config.json", "pipe.yaml", "stacks/Pulumi.f.yaml", "cat/models/f.yaml"):
        os.mkfifo(tmp_path / pipe)
    own = {"model": "./dir", "repository": "a/b"}
    for name, data in {
        "a": environment(aggregated(**own)),
        "b": environment(aggregated(**{**own, "model": "./m"})),
        "c": environment(aggregated(), catalogDirs=["dir"]),
        "d": environment(aggregated(model="q"), catalogDirs=["cat"]),
        "e": environment(aggregated(model="f"), catalogDirs=["cat"]),
        "g": environment(aggregated(**{**own, "model": "./pipe"})),
    }.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    given = ["loop.yaml", "./dir/x.yaml", "l", "f", "pipe.yaml", "m", ".git/x.yaml", *(f"{name}.yaml" for name in "abcdeg")]
    for command in [["check", one] for one in given] + [["plan", "l"], ["plan", "--all"], ["catalog", "models", "--catalog-dir", "dir"]]:
        assert main(command) in {1, 2}, command
        said = capsys.readouterr()
        assert (said.out + said.err).strip()
    (tmp_path / "ok.yaml").write_text(yaml.safe_dump(environment(aggregated())), encoding="utf-8")
    for output in ("loop.yaml", "dir", ""):
        assert main(["render", "ok.yaml", "-o", output]) == 1
        assert not list(tmp_path.glob("0*.yaml"))


def test_streams_of_any_kind(tmp_path: Path) -> None:
    """An encoding of few characters, or no output at all, is no reason for a traceback."""
    (tmp_path / "a.yaml").write_text("models: é\n", encoding="utf-8")
    for before in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        command = [sys.executable, "-m", "disagg_serving", "check", "a.yaml"]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **before}, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m disagg_serving check a.yaml >&-"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
