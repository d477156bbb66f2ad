"""The report as a page: figures and tables rendered once, rollouts packed and opened by the page's script."""

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flywheel.evaluation.tables import describe, describe_origins
from flywheel.progress import Tracker, duration
from flywheel.workspace import Workspace

from . import charts
from .gather import Report, detail, gather, read_all, summary, trained_calls

CHUNK = 40
"""Rollouts that are packed together, and opened together."""


def render(workspace: Workspace, path: Path) -> Report:
    """Write the report of a workspace as one HTML file, which needs nothing else.

    Raises:
        InfrastructureError: when the disk refuses.
    """
    from flywheel.files import write_text

    report = gather(workspace)
    index, chunks = pack(workspace, report)
    write_text(path, page(report, index, chunks))
    return report


def pack(workspace: Workspace, report: Report) -> tuple[str, list[str]]:
    """The list of rollouts, and the rollouts themselves in chunks; all compressed, as text."""
    trained = trained_calls(workspace, report.left_out)
    index: list[dict[str, Any]] = []
    chunks: list[str] = []
    part: list[dict[str, Any]] = []
    with Tracker("report", report.rollouts) as tracker:
        for source, rollout in read_all(workspace, report.left_out):
            index.append(summary(source, rollout))
            part.append(detail(rollout, trained))
            if len(part) == CHUNK:
                chunks.append(packed(part))
                part = []
            if len(index) <= report.rollouts:
                tracker.advance()
    if part:
        chunks.append(packed(part))
    return packed(index), chunks


def packed(value: object) -> str:
    """JSON, compressed, in base64: a browser opens it without help."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()


def page(report: Report, index: str, chunks: Iterable[str]) -> str:
    """The whole page."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("flywheel", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"duration": duration, "percent": lambda share: f"{share:.0%}"}
    here = Path(__file__).parent
    return environment.get_template("page.html.j2").render(
        report=report, index=index, chunks=list(chunks), chunk=CHUNK, charts=dict(_charts(report)),
        comparisons=[(name, describe(pair)) for name, found in report.evaluations for pair in found.comparisons],
        origins=describe_origins(report.evaluations[-1][1].arms[-1]) if report.evaluations else [],
        style=(here / "page.css").read_text(encoding="utf-8"), script=(here / "page.js").read_text(encoding="utf-8"),
    )  # fmt: skip


def _charts(report: Report) -> Iterator[tuple[str, str]]:
    if report.evaluations:
        yield "scores", charts.scores(report.evaluations)
        last = report.evaluations[-1][1].arms[-1]
        if last.origins:
            yield "origins", charts.shares(last.origins, f"Where the failures of {last.name} began")
    if report.selection:
        yield "funnel", charts.funnel(report.selection)
