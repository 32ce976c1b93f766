"""The pages themselves: gathered values through the templates beside this file."""

from __future__ import annotations

from pathlib import Path

import jinja2

from bench.report.site import gather, status, verdicts
from bench.report.site.gather import Report
from bench.report.site.values import Site

INDEX = "index.html"


def write(report: Report) -> tuple[Site, list[Path]]:
    """Build everything, write the index and a page per paper; what was found, and the paths of the pages."""
    report.out.mkdir(parents=True, exist_ok=True)
    site = gather.site(report)
    templates = _templates()
    texts = {INDEX: templates.get_template("index.html").render(site=site)}
    for paper in site.papers:
        texts[paper.href] = templates.get_template("paper.html").render(site=site, paper=paper)
    for name, text in texts.items():
        (report.out / name).write_text(text, encoding="utf-8")
    return site, [report.out / name for name in texts]


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench.report.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"STATES": status.STATES, "VERDICTS": verdicts.WORDS, "TONES": verdicts.TONES}
    return environment
