from __future__ import annotations

import subprocess
import sys

import pytest
from factories import ROOT, SHIPPED

HEAVY = ("pulumi", "grpc", "boto3", "kubernetes", "disagg_serving.rules.explanations")
LOADED = f"import sys; sys.exit(' '.join(m for m in {HEAVY} if m in sys.modules))"


@pytest.mark.parametrize(
    "code",
    [
        "import disagg_serving",
        "import disagg_serving.spec, disagg_serving.catalog, disagg_serving.rules.evaluation, disagg_serving.manifests.bundle",
        "from disagg_serving.cli.main import main; main(['check', 'prod'])",
    ],
)
def test_nothing_heavy_is_loaded_without_need(code: str) -> None:
    """The package, its parts without resources, and a check run without Pulumi, any client, and what explains rules."""
    done = subprocess.run([sys.executable, "-c", f"{code}; {LOADED}"], cwd=SHIPPED, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("\n", 1), done.stderr


def test_components_of_a_cluster_load_no_aws_module() -> None:
    """A program that uses a cluster that exists does not pay for the large AWS module."""
    code = "from disagg_serving.resources import Gateway, Lws, ModelServing, NodePools; import sys; sys.exit('pulumi_aws' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
