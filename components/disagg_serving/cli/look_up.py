"""`--look-up`, the option of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import Finding
from ..planning.shapes import Layout
from ..rules.evaluation import judge
from ..spec.stack_file import StackFile

LookUp = Annotated[bool, typer.Option("--look-up", help="Ask AWS for quota, offerings, reservations and prices, with the credentials here.")]


def looked_up(layout: Layout | None, file: StackFile) -> list[Finding]:
    """Findings about what AWS answers; none for input too faulty for a layout, or where no pools are made.

    Raises ToolError where boto3 is not installed or the stack's aws:profile does not exist.
    """
    from ..lookups import look_up, open_session  # noqa: PLC0415 (extra: boto3)
    from ..rules.looked_up import questions_of  # noqa: PLC0415 (slow)

    questions = questions_of(layout) if layout else None
    if layout is None or questions is None:
        return []
    profile = file.config.get("aws:profile")
    return judge(layout, look_up(questions, open_session(questions.region, profile if isinstance(profile, str) else None)))
