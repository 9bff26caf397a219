"""Look-ups at AWS during a preview or an update, where the stack asks for them."""

from dataclasses import replace

import pulumi

from ..errors import Level, ToolError, sort_findings
from ..rules.evaluation import Evaluation, judge
from ..rules.looked_up import questions_of


def looked_up(evaluation: Evaluation) -> Evaluation:
    """The evaluation with findings about the answers of AWS, by the profile of Pulumi's `aws` configuration.

    Where nothing can be asked it is as it was, and Pulumi's log has a warning.
    """
    questions = questions_of(evaluation.layout) if evaluation.layout else None
    if questions is None or evaluation.layout is None or not evaluation.ok:
        return evaluation
    try:
        from ..lookups import look_up, open_session  # noqa: PLC0415 (extra: boto3)

        session = open_session(questions.region, pulumi.Config("aws").get("profile"))
    except ToolError as problem:
        pulumi.log.warn(f"lookUps: {problem}")
        return evaluation
    found = judge(evaluation.layout, look_up(questions, session))
    for finding in found:
        if finding.level is Level.INFO:
            pulumi.log.info(finding.sentence())
    return replace(evaluation, findings=sort_findings([*evaluation.findings, *found]))
