"""Every command that a page tells to type: run where it can run, else listed with the reason, and its options compared with the program's."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from disagg_serving.cli.main import COMMANDS, build_app
from documents import Command, blocks, commands, documents, tokens
from factories import ROOT, SHIPPED
from repositories import Repository
from typer import TyperException
from typer.main import get_command

NOT_RUN = {
    r"make [a-z-]+": "installs, builds or runs this suite; the target is looked up in the Makefile",
    r"disagg (verify|bench .*--start).*": "wants a cluster: tests/live/test_verify.py and tests/live/test_load.py run it",
    r"disagg .*--look-up.*": "asks AWS: tests/cli/test_look_up.py runs it against answers",
    r"([A-Z_]+=\$\()?pulumi .*": "wants Pulumi's command: tests/live/test_engine.py runs preview, up and destroy",
    r"pip install .*": "installs: scripts/check_package.py does it with the built wheel",
    r"([A-Z_]+=\$\()?aws .*": "wants an account",
    r"source .*": "sets up the reader's shell",
    r"(PREFILL=\$\()?kubectl .*": "wants a cluster",
    r"curl .*": "wants an endpoint",
}
"""Commands that no test types, by pattern, and why."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
LOG = "vLLM API server version 0.33.0\nModel loading took 33.88 GiB memory and 41 seconds\nAvailable KV cache memory: 32.00 GiB\n"
VALUES = (ROOT / "tests/data/imports/llm-d-modelservice.yaml").read_text(encoding="utf-8")
OWN_FILES = {"my-model/config.json": json.dumps(CONFIG), "engine.log": LOG, "values.yaml": VALUES}
"""Files that a reader has and this repository has not."""

APP: Any = get_command(build_app())
ALL = commands()


def plain(text: str) -> str:
    """A command without the folder of the program, variables before it, and what the shell and jq do with its output."""
    text = re.sub(r"^(\.venv/bin/)", "", text)
    text = re.sub(r" \| jq .*", "", text)
    return re.sub(r"\s+(&|> \S+)$", "", text)


def reason(command: Command) -> str | None:
    """Why a command is not run; None where it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, plain(command.text))), None)


RUN = [c for c in ALL if reason(c) is None]


def test_each_pattern_is_needed() -> None:
    """A reason for not running something is there only while something is not run for it, and nothing is run that the list does not know."""
    assert [p for p in NOT_RUN if not any(re.fullmatch(p, plain(c.text)) for c in ALL)] == []
    assert {plain(c.text).split()[0] for c in RUN} == {"disagg"}
    assert len(ALL) > 70
    assert len(RUN) > 25


@pytest.mark.parametrize("file", sorted({c.block.file for c in RUN}), ids=lambda f: f.relative_to(ROOT).as_posix())
def test_commands_run(file: Path, disagg: Run, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a page, one after the other in a copy of the repository, end as a reader expects: without an error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository.folder.parent / "cache"))
    repository.git("reset", "--quiet", "--hard")
    repository.git("clean", "--quiet", "-ffdx")
    copy = repository.folder
    for command in (c for c in RUN if c.block.file == file):
        folder = copy / file.parent.relative_to(ROOT) if "from this folder" in file.read_text(encoding="utf-8") else copy
        assert disagg(*shlex.split(plain(command.text))[1:], cwd=folder) == 0, (command.text, disagg.out[-2000:] + disagg.err)
        assert disagg.out.strip(), command.text
        if " | " in command.text and shutil.which("jq"):
            asked = subprocess.run(["bash", "-c", command.text.split(" | ", 1)[1]], input=disagg.out, capture_output=True, text=True, check=False)  # noqa: S607
            assert (asked.returncode, asked.stdout.strip()) == (0, "true"), asked.stderr


def output_on(page: str, words: str) -> list[str]:
    """The lines of what a page shows as printed, by some words in it."""
    (block,) = [b for b in blocks("text") if b.file == ROOT / page and words in b.text]
    return block.text.splitlines()


def test_shown_error_is_printed(disagg: Run, tmp_path: Path) -> None:
    """The error that the quick start shows is what `check` says of the stack that it has made, after the change that it tells."""
    text = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")
    (making,) = [c for c in RUN if c.block.file == ROOT / "docs/quick-start.md" and " init try " in c.text]
    (changed,) = re.findall(r"`(maxModelLen: \d+)` for example", text)
    assert disagg(*shlex.split(plain(making.text))[1:], cwd=tmp_path) == 0
    file = tmp_path / "stacks/Pulumi.try.yaml"
    file.write_text(re.sub(r"maxModelLen: \d+", changed, file.read_text(encoding="utf-8")), encoding="utf-8")
    assert disagg("check", "try", cwd=tmp_path) == 2
    assert [line for line in disagg.out.splitlines() if line.startswith("error")] == output_on("docs/quick-start.md", "error [")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The tracked files with the stacks as shipped, as a repository of their own, whose main is also that of its origin."""
    folder = tmp_path_factory.mktemp("pages") / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")  # noqa: S607
    for name in filter(None, listed):
        target = folder / name
        if (ROOT / name).is_file() and not name.startswith(("tests/", "bench/", "stacks/")):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    shutil.copytree(SHIPPED / "stacks", folder / "stacks")
    repository = Repository(folder)
    repository.git("update-ref", "refs/remotes/origin/main", repository.commit(OWN_FILES))
    return repository


def accepts(words: list[str], *, whole: bool) -> str:
    """What the program says to a command line that it does not take; nothing where it does. A part of a line may lack what is required."""
    name, args = words[0], [w for w in words[1:] if w != "..."]
    if name not in COMMANDS:
        return f"no command {name}"
    try:
        APP.commands[name].make_context(name, list(args))
    except TyperException as problem:
        said = str(getattr(problem, "message", problem))
        lacking = "Missing" in f"{type(problem).__name__} {said}" or "requires an argument" in said
        return "" if lacking and not whole else said or type(problem).__name__
    return ""


@pytest.mark.parametrize("command", [c for c in ALL if plain(c.text).startswith("disagg ")], ids=lambda c: f"{c.block.place} {c.text}")
def test_commands_have_the_options_of_the_program(command: Command) -> None:
    """Also those that cannot run here: each option exists, takes such a value, and nothing that is required is missing."""
    assert accepts(shlex.split(plain(command.text))[1:], whole=True) == ""


def mentioned() -> list[tuple[str, str]]:
    """Every `disagg ...` inside a sentence, with its page."""
    found = []
    for file in documents():
        spans = [c.content for t in tokens(file) for c in t.children or [] if c.type == "code_inline"]
        found += [(file.relative_to(ROOT).as_posix(), s) for s in spans if re.match(r"disagg [a-z]", s) and "COMMAND" not in s]
    return sorted(set(found))


@pytest.mark.parametrize(("page", "text"), mentioned())
def test_mentioned_commands_exist(page: str, text: str) -> None:
    """A command inside a sentence has options that the program has; what is required may be left out."""
    words = shlex.split(text)[1:]
    options = [w for w in words if not re.fullmatch(r"models\|.*|\[.*", w)]
    assert accepts(options, whole=False) == "", page


def test_the_program_is_asked() -> None:
    """An option, a value or a command that does not exist is noticed."""
    assert "no-such" in accepts(["plan", "prod", "--no-such"], whole=False)
    assert "pdf" in accepts(["plan", "prod", "--format", "pdf"], whole=True)
    assert accepts(["fit"], whole=True) != "" == accepts(["fit"], whole=False)
    assert accepts(["deploy"], whole=False) == "no command deploy"


@pytest.mark.parametrize("command", ALL, ids=lambda c: f"{c.block.place} {c.text[:40]}")
def test_commands_are_shell(command: Command) -> None:
    """A shell reads every command, also those that are not run."""
    assert subprocess.run(["bash", "-n", "-c", command.text], capture_output=True, text=True, check=False).stderr == ""  # noqa: S607


@pytest.mark.parametrize("file", sorted({c.block.file for c in ALL}), ids=lambda f: f.relative_to(ROOT).as_posix())
def test_variables_are_set(file: Path) -> None:
    """Whoever types the commands of a page from its top has set every variable that one of them reads."""
    known: set[str] = set()
    for command in (c for c in ALL if c.block.file == file):
        assert set(re.findall(r"\$\{?([A-Za-z_]\w*)", command.text)) <= known, command.text
        known |= set(re.findall(r"^([A-Za-z_]\w*)=", command.text))


def test_targets_and_extras_exist() -> None:
    """`make TARGET` and `pip install 'disagg-serving[EXTRA]'` on any page name what there is."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in documents())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r"(?:`|\$ )make ([a-z-]+(?: [a-z-]+)*)", text))
    assert {word for line in named for word in line.split()} <= targets
    assert set(re.findall(r"disagg-serving\[([a-z]+)\]", text)) <= extras.keys()
