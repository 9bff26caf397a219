"""Proposes changes to replacements.yaml from the pinned pulumi_aws: inputs whose own description says that they make a new resource.

Descriptions are texts for people and say it of some inputs alone, so nothing is written: each line is to be looked up in the provider's
schema. Exit 1 when there is one.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "components/disagg_serving/comparison/replacements.yaml"
SAYS = re.compile(
    r"forces? (?:a |the )?(?:new|replacement|creation|re-?creation)|new (?:\w+ ){0,2}(?:resource )?(?:to be|is|will be) created|force a new|"
    r"(?:will|to) (?:be )?(?:re-?created?|replaced?)\b|requires? (?:replacement|re-?creation)|replaces? the resource",
    re.IGNORECASE,
)


def module_of(token: str) -> Path:
    """The file of a type `aws:ec2/natGateway:NatGateway` in the installed package."""
    module, _, file = token.split(":")[1].partition("/")
    spec = importlib.util.find_spec("pulumi_aws")
    folder = Path(next(iter(spec.submodule_search_locations or []))) if spec else Path()
    return folder / module / f"{re.sub('(?<!^)(?=[A-Z])', '_', file).lower()}.py"


def described(token: str) -> dict[str, str]:
    """Descriptions of a type's inputs, by name."""
    tree = ast.parse(module_of(token).read_text(encoding="utf-8"))
    (args,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name.endswith("Args"))
    found: dict[str, str] = {}
    for item in args.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("__"):
            first, *others = item.name.split("_")
            # the setter of an input has no docstring; its getter's stands
            found.setdefault("".join([first, *(o.capitalize() for o in others)]), " ".join((ast.get_docstring(item) or "").split()))
    return found


def main() -> int:
    """Print what the descriptions say and the table does not, and what the table says of inputs that are none."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["aws"]
    proposals = []
    for token, listed in table["types"].items():
        texts = described(token)
        top = {path.split(".")[0] for path in listed}
        known = {*top, *table["every"], *table["conditional"].get(token, ())}
        for name, text in texts.items():
            if name not in known and SAYS.search(text):
                proposals.append(f"{token}: {name} is not listed: {text}")
        proposals += [f"{token}: {name} is listed and is no input" for name in sorted(top - texts.keys())]
    print("\n".join(proposals) or "nothing to propose")
    print(f"{len(table['types'])} types, against the descriptions of pulumi_aws {version('pulumi-aws')}")
    return 1 if proposals else 0


if __name__ == "__main__":
    sys.exit(main())
