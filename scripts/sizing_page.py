"""Pages of the sizing that are made by the program: what the step times cover, and where a split pays. Written by scripts/generate.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.step_times import step_data, step_tables
from disagg_serving.cli.sizing_options import Options, question
from disagg_serving.document.sizing import SizedLayout
from disagg_serving.errors import SpecError
from disagg_serving.forecast.sizing import Ask
from disagg_serving.rules.sized import answer

from scripts.reference import MADE, page, table

ROOT = Path(__file__).resolve().parent.parent
GPUS = ("h100", "h200", "b200", "b300")
PROMPT, REPLY, TTFT, TPOT = 8000, 1000, 3000, 50
RATES = (1, 5, 20)


def step_times_page() -> str:
    """What the tables cover, what the gates refused, and how far they are from measured runs."""
    data = step_data()
    size = sum(file.stat().st_size for file in (ROOT / "components/disagg_serving/catalog/steps").glob("*.xz"))
    head = [
        f"{MADE} from catalog/steps.yaml. Tables: {data.library}, kernels of {data.engine}, made {data.made}, {size / 1000:.0f} kB in the wheel.",
        "",
        data.notice.replace("<", "\\<"),
        "",
        "Rows: public runs of the model on this GPU, with the tenth percentile, median and ninetieth of measured by forecast time per token. Without",
        "rows the error is that of the class, and the forecast is not validated.",
        "",
    ]
    rows = []
    for model in data.configs:
        for gpu in GPUS:
            forms = [str(form) for on, form in step_tables(model) if on == gpu]
            error = data.errors.get(model, {}).get(gpu)
            told = f"{error.low:.2f}, {error.mid:.2f}, {error.high:.2f} ({error.rows} rows)" if error else "not validated"
            rows.append((f"`{model}`", gpu, ", ".join(forms) or "none", told))
    gone = [(f"`{model}`", key, why) for kind in (data.refused, data.missing) for model, tables in kind.items() for key, why in tables.items()]
    classes = [
        f"Over all rows: dense models {_all('dense')}, models with experts {_all('experts')}.",
        "",
    ]
    return page(
        "Step times",
        head,
        table(("model", "GPU", "forms", "error"), rows),
        classes,
        ["## What is left out", "", *table(("model", "table", "refused by a gate, or not measured"), gone)],
    )


def _all(group: str) -> str:
    error = step_data().errors[group]["all"]
    return f"{error.low:.2f}, {error.mid:.2f}, {error.high:.2f} ({error.rows} rows)"


def split_page() -> str:
    """What one role and separate ones cost for each model at several loads."""
    head = [
        f"{MADE} with `disagg size`: prompts of {PROMPT:,} tokens, answers of {REPLY:,}, a first token within {TTFT:,} ms and {TPOT} ms a further",
        "token for 90 % of the requests, on-demand prices, slow steps. A difference below 15 % is equal.",
        "",
    ]
    rows = list(_comparisons())
    verdicts = Counter(row[-1] for row in rows)
    tail = [f"{number} x {verdict}." for verdict, number in verdicts.most_common()]
    names = ("model", "requests/s", "one role", "USD/h", "prefill and decode", "USD/h", "cheaper")
    return page("One role or two", head, table(names, rows), ["", *tail])


def _comparisons() -> Iterator[tuple[object, ...]]:
    for model in step_data().configs:
        for rate in RATES:
            one, two = (_cheapest(model, rate, mode) for mode in ("aggregated", "disaggregated"))
            yield (f"`{model}`", rate, *_cell(one), *_cell(two), _verdict(one, two))


def _cell(layout: SizedLayout | None) -> tuple[str, str]:
    return (layout.name, f"{layout.usd_per_hour:,.2f}") if layout else ("none keeps the limits", "")


def _verdict(one: SizedLayout | None, two: SizedLayout | None) -> str:
    if one is None or two is None:
        return "neither" if one is two else "one role" if two is None else "two roles"
    factor = one.usd_per_hour / two.usd_per_hour
    return "two roles" if factor > 1.15 else "one role" if factor < 1 / 1.15 else "equal"  # noqa: PLR2004 (what counts as equal)


def _cheapest(model: str, rate: float, mode: str) -> SizedLayout | None:
    catalog = load_catalog()
    options = Options(model, str(PROMPT), str(REPLY), str(rate), str(TTFT), str(TPOT), mode=mode)
    ask: Ask
    ask, wish, _ = question(options, catalog)
    try:
        found = answer(ask, wish, catalog, ROOT, 1)
    except SpecError:
        return None
    return found.document.cheapest if found.document else None


def pages() -> dict[Path, str]:
    """The pages by file."""
    return {ROOT / "docs/reference/step-times.md": step_times_page(), ROOT / "docs/reference/one-role-or-two.md": split_page()}
