from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from disagg_serving.document.difference import Change, CheckChanges, Difference, FigureChange, Op, PathChange
from disagg_serving.document.resource import Resource
from disagg_serving.errors import Finding, Level
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import Plan, assemble
from disagg_serving.recording.topology import mermaid_label, topology_of
from disagg_serving.report.markdown import COMMENT, render_markdown
from disagg_serving.report.markup import code, prose
from factories import STACKS, aggregated, check, environment, layout, model, role
from pages import HOSTILE, growing, hostile_plan
from recording import PROJECT, stack_graph

ELEMENTS = {
    *("h2", "h3", "p", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"),
    "code",
    "pre",
    "strong",
    "details",
    "summary",
    "span",
}
"""What the report writes by itself."""
MODELS = 200
"""Of the largest plan."""


def html_of(markdown: str) -> str:
    """What GitHub's renderer makes of a text."""
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_GITHUB_PRE_LANG
    return str(cmarkgfm.markdown_to_html_with_extensions(markdown, options=options, extensions=["table", "autolink", "strikethrough", "tasklist"]))


def plan_of(data: Any, *, findings: list[Finding] | None = None, graph: Graph | None = None) -> Plan:
    """A plan of an environment without its recording."""
    found = check(data)
    return assemble("disagg-serving", "test", graph or Graph(), found.findings if findings is None else findings, found.layout)


def outside_code(html: str) -> str:
    """The words that GitHub looks for mentions and references in."""
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(code|pre)\b.*?</\1>", " ", html, flags=re.DOTALL))


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("how", [code, prose])
@pytest.mark.parametrize("frame", ["- {}\n", "| a | b |\n|---|---|\n| {} | end |\n", "> {}\n", "a {}: b\n"])
def test_hostile_texts_stay_texts(text: str, how: Any, frame: str) -> None:
    """Whatever a name holds, GitHub's own renderer makes words of it: no element, link, mention or reference, and the cell after it stays."""
    plain = html_of(frame.format("word"))
    html = html_of(frame.format(how(text)))
    shape = re.sub(r"</?(code|span)>", "", re.sub(r">[^<]+<", "><", html))

    assert shape == re.sub(r">[^<]+<", "><", plain)
    assert not re.search(r"@\w|(^|\W)#\d|GH-\d|://|www\.|:tada:", outside_code(html))
    assert len(how(text)) < 3000
    if "end" in frame:
        assert "<td>end</td>" in html


def test_a_hostile_plan_has_the_shape_of_a_plan() -> None:
    """No part of a plan lets a name out: the elements are those that the report itself writes, and nobody is mentioned."""
    html = html_of(render_markdown([hostile_plan()]))
    elements = set(re.findall(r"<(\w+)", html))

    assert elements <= ELEMENTS
    assert html.count("<details>") == html.count("</details>")
    assert not re.search(r"@\w|(^|\W)#\d|://|www\.", outside_code(html))
    assert "\x1b" not in html
    assert "\u202e" not in html


def big_environment() -> dict[str, Any]:
    """So many models in prefill and decode."""
    return environment(*(model(name=f"model-with-a-rather-long-name-{i}") for i in range(MODELS)))


def test_any_plan_fits_a_comment() -> None:
    """Many models with thousands of resources, changes and findings stay below GitHub's limit, worst things first, and what was cut is counted."""
    long = "word " * 300
    findings = [Finding("rule", level, f"models[{i}].decode", long, i) for level in Level for i in range(400)]
    resources = {f"u{i}": Resource(f"u{i}", "aws:ec2/vpc:Vpc", f"name-{i}", None, None, False, True, {}, (), {}) for i in range(5000)}
    changes = [Change(f"u{i}", "aws:ec2/vpc:Vpc", f"n{i}", Op.REPLACE, [], f"breaks {i}", Level.ERROR) for i in range(500)]
    changes += [Change(f"v{i}", "aws:ec2/vpc:Vpc", f"m{i}", Op.UPDATE, [PathChange("a", "b" * 900, "c")] * 40) for i in range(500)]
    plan = plan_of(big_environment(), findings=findings, graph=Graph(resources))
    text = render_markdown([replace(plan, changes=changes, difference=Difference("main", "abc"))])

    assert 50_000 < len(text.encode()) <= COMMENT
    assert "Cannot be deployed: 400 checks fail" in text
    assert "breaks 0" in text
    assert re.search(r"Cut to fit a comment: .*resources", text)
    assert "`disagg plan test --format html` shows all" in text
    assert html_of(text).count("<details>") == html_of(text).count("</details>")


def test_many_stacks_share_a_comment() -> None:
    """A table of all stacks stands first, the worst first; then details in that order while there is room, and last what was cut."""
    plan = plan_of(environment(model(decode=role(pipelineParallel=2))), findings=[Finding("rule", Level.ERROR, "models", "word " * 300)] * 50)
    fine = replace(plan, stack="fine", checks=[])
    worst = replace(plan, stack="worst", checks=[*plan.checks, *plan.checks])
    several = render_markdown([fine, *(replace(plan, stack=f"stack-{i}") for i in range(8)), worst])
    crowd = render_markdown([fine, *(replace(plan, stack=f"stack-{i}") for i in range(148)), worst])
    thousands = render_markdown([replace(plan, stack=f"stack-{i:04}-{'x' * 60}") for i in range(2000)])

    assert max(len(text.encode()) for text in (several, crowd, thousands)) <= COMMENT
    assert several.count("\n> [!CAUTION]") == 9
    assert several.count("### Checks") == 9
    for text, stacks in ((several, 10), (crowd, 150)):
        table, _, details = text.partition("\n\n## Plan of ")
        assert table.startswith(f"## {stacks} stacks\n")
        rows = [line for line in table.splitlines() if line.startswith("| `")]
        assert len(rows) == stacks
        assert rows[0].startswith("| `worst` | **error** | Cannot be deployed: 100 checks fail | 100 | 0 |")
        assert rows[-1].startswith("| `fine` | ok | Can be deployed | 0 | 0 |")
        assert details.startswith("`worst`")
    shown = crowd.count("\n## Plan of ")
    assert len(crowd.encode()) > 50_000
    assert shown > 5
    assert crowd.splitlines()[-1] == f"> Cut to fit a comment: details of {150 - shown} stacks. `disagg plan --all --format html` shows all."
    assert re.search(r"and 1,\d+ more stacks, none of them worse", thousands)


def test_a_large_picture_is_one_that_mermaid_draws() -> None:
    """Mermaid refuses more than 500 links or 50,000 characters: models that are too many are counted, and like nodes are one box."""
    many = topology_of(layout(environment(*(model(name=f"m{i}") for i in range(200)))))
    wide = topology_of(layout(environment(model(prefill=role(replicas=400), decode=role(replicas=900)))))

    assert len(many) < 50_000
    assert many.count("-->") + many.count("==>") < 500
    assert re.search(r'more\["\d+ more models"\]', many) or "200" in many
    assert "100 nodes, each:<br/>4 x m-prefill" in wide
    assert len(wide.splitlines()) < 20


def test_groups_over_nodes_are_linked_inside_a_group() -> None:
    """Stages of one engine are linked with each other, and requests reach the leader of each group."""
    reserved = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 4}
    two = aggregated(model="glm-5-fp8", name="g", server=role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity=reserved))
    text = topology_of(layout(environment(two)))
    links = re.findall(r"(p0n\d) <-->\|NCCL over EFA\| (p0n\d)", text)
    assert len(links) == 2
    assert len({node for link in links for node in link}) == 4
    assert re.findall(r"r0 --> (p0n\d)", text) == [a for a, _ in links]


@pytest.mark.parametrize("text", ['"]; click x "javascript:alert(1)"', "```\n# x", "`md`", "<b>&quot;", "#quot;", "%%{init: {}}%%", "a|b{c}[d]"])
def test_mermaid_labels_hold_no_signs(text: str) -> None:
    """A name inside the picture cannot end its label, its line or its block."""
    assert re.fullmatch(r"([\w .,:=+/()-]|#\d+;)*", mermaid_label(text), flags=re.ASCII)


@pytest.mark.parametrize("stack", STACKS)
def test_numbers_are_aligned_and_parts_open(stack: str) -> None:
    """Tables are tables for GitHub, with columns of numbers aligned on the right, and the picture is a Mermaid block."""
    found = check(PROJECT.stack_file(stack).environment | {"name": stack})
    html = html_of(render_markdown([assemble("disagg-serving", stack, stack_graph(stack), found.findings, found.layout)]))
    assert '<pre lang="mermaid"><code>flowchart LR' in html
    assert html.count("<table>") >= 5
    assert '<td align="right">' in html
    assert "| ---" not in html


def test_differences_stand_worst_first() -> None:
    """What breaks is said before what merely changes, with values before and after, and findings since the base are marked."""
    finding = Finding("heads", Level.ERROR, "models[0].decode.tensorParallel", "does not divide", 3)
    gone = Finding("quota", Level.INFO, "models", "may need a quota")
    changes = [
        Change("u1", "eks:index:Cluster", "prod", Op.REPLACE, [PathChange("vpcId", "a", "b", True)], "everything goes", Level.ERROR),
        Change("u2", "aws:ec2/vpc:Vpc", "prod", Op.UPDATE, [PathChange("tags.a", None, "x")]),
    ]
    costs = [FigureChange("total", "price", 100.0, 150.0, "USD a month"), FigureChange("x", "nodes", 1, 2, "p5.48xlarge", Level.WARNING)]
    notes, checks = ["the base has other requirements"], CheckChanges([finding], [gone])
    difference = Difference("origin/main", "abc", notes=notes, unchanged=7, cost=costs, checks=checks)
    text = render_markdown([replace(plan_of(environment(), findings=[finding]), changes=changes, difference=difference)])

    assert text.index("everything goes") < text.index("Figures that differ") < text.index("tags.a")
    assert "`vpcId`: `a` → `b`, **forces the replacement**" in text
    assert "`tags.a`: `nothing` → `x`" in text
    assert "1 replaced, 1 updated" in text
    assert "7 unchanged since origin/main" in text
    assert "the base has other requirements" in text
    assert re.search(r"`heads` .*\*\*new\*\* \|", text)
    assert "Findings that are gone (1)" in text
    assert "| 100 | 150 | +50 (+50%) |" in text
    assert text.index("p5.48xlarge") > 0


def test_figures_of_a_refused_stack() -> None:
    """A stack that cannot be laid out still gets a verdict, its checks and nothing made up."""
    text = render_markdown([plan_of(environment(model(decode=role(pipelineParallel=2))))])
    assert "> [!CAUTION]" in text
    assert "Cannot be deployed: " in text
    assert "nixl-pipeline-parallel" in text
    assert "Cost" not in text
    assert "mermaid" not in text


def test_what_autoscaling_may_cost_is_said() -> None:
    """A reviewer of a scaled model reads bounds, and nodes and cost at most, beside those at least; of others nothing about it."""
    plan = plan_of(growing())
    text = render_markdown([plan])
    assert plan.autoscaling.at_most is not None
    most = plan.autoscaling.at_most.cost.per_month
    assert re.search(r"^\| `m prefill` \| 2 \| 8 \|", text, re.MULTILINE)
    assert f"{most:,.0f} a month at most" in text.partition("### Checks")[0]
    assert f"{most:,.2f} USD/month" in text
    assert "<h3>Autoscaling</h3>" in html_of(text)
    assert "Autoscaling" not in render_markdown([plan_of(environment(model()))])
