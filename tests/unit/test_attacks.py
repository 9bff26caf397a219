"""Files that once ended in a traceback, a hang or a leak: each is answered within a second of work, with what must be said."""

from __future__ import annotations

import time

import pytest
from disagg_serving.cli.main import main
from factories import ROOT

ATTACKS = ROOT / "tests/data/attacks"
SAID: dict[str, tuple[int, str]] = {
    "key-bomb.yaml": (2, "key-bomb.yaml:7:35: is not valid YAML: with all that aliases repeat, the file has more values than"),
    "merge-overrides.yaml": (2, "error [unknown-key] first:"),
    "models-set.yaml": (2, "models-set.yaml:3:9: is not valid YAML: tag !!set is not read here"),
    "yaml-bool-tag.yaml": (2, "yaml-bool-tag.yaml:4:9: is not valid YAML: a value tagged !!bool is none"),
    "yaml-timestamp-tag.yaml": (2, "yaml-timestamp-tag.yaml:2:9: is not valid YAML: a value tagged !!timestamp is none"),
    "secret-flag-space.yaml": (2, "error [extra-args] models[0].extraArgs[0]: is not a flag"),
    "secret-kubeconfig-inline.yaml": (2, "error [plain-secret] existingCluster.kubeconfig: has a password"),
    "control-characters.yaml": (2, "error [characters] models[0].repository: Qwen/Qwen3\\u200b-32B holds U+200B"),
    "terminal-chart.yaml": (2, "error [characters] lws.chart: oci://x/\\x1b]0;PWN"),
    "surrogate/env.yaml": (2, "models[0].model"),
}
"""What `disagg check` of each ends with, and one thing that it says."""
SECONDS = 1.0


def test_thousands_of_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    """Pods that are alike are counted, not placed one by one, however many corrections are tried."""
    before = time.process_time()
    assert main(["check", str(ATTACKS / "check-slow.yaml")]) in {0, 2}
    assert time.process_time() - before < 4 * SECONDS
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", SAID)
def test_attacks_are_answered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In each format: the exit code, the words, no traceback, and not longer than a second."""
    code, says = SAID[name]
    for output in ("text", "json", "sarif"):
        before = time.process_time()
        assert main(["check", str(ATTACKS / name), "--format", output]) == code
        assert time.process_time() - before < SECONDS
        printed = capsys.readouterr()
        assert output != "text" or says in printed.out + printed.err
        assert "leaked" not in printed.out + printed.err
        assert "\x1b" not in printed.out + printed.err
        printed.out.encode()
