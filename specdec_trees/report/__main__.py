"""`python -m specdec_trees.report [<paper>/<artifact> | smoke | default]`: write tables and figures from results.

Of one artifact its files; without a name those of all artifacts, and the HTML report of them, `index.html`. What was
run under a name of your own, or under none (`default`), is shown too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from specdec_trees.artifacts import ties
from specdec_trees.artifacts.outputs import Html, NoResultsError, write_all
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table, to_text, wrapped
from specdec_trees.locations import hint
from specdec_trees.papers.registry import ARTIFACTS, SUMMARIES, build, command, yours
from specdec_trees.report.site import pages
from specdec_trees.report.site.facts import STATES, count_verdicts
from specdec_trees.report.site.pages import Report
from specdec_trees.results.pack import FOLDER
from specdec_trees.results.parquet import warned_once

ONLY: dict[str, tuple[type, ...]] = {"figures": (Figure, Html), "tables": (Table,)}
"""What `--only` leaves of an artifact's outputs; a case study's page is its figure in another form."""
_SMOKE = hint("make smoke", "specdec smoke")


@warned_once()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of one artifact or the statuses of all, and the paths written.

    0; 1 if an artifact of a report could not be drawn, which its page says; or 2 with one sentence.
    """
    options = _parser().parse_args(arguments)
    if not options.artifact and not options.results.is_dir():
        return _fail(f"there is no folder {options.results}; give another --results, or run `{_SMOKE}` first")
    if options.pair and not options.artifact and not pages.pairs(options.results, options.pair):
        others = ", ".join(sorted(pages.pairs(options.results))) or "none"
        return _fail(f"there are no results of pair {options.pair} in {options.results}; pairs there: {others}")
    report = _one if options.artifact else _files if options.only else _site
    try:
        return report(options)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(f"the report cannot be written to {options.out} ({error.strerror or error}); give another --out")


def _one(options: argparse.Namespace) -> int:
    """One artifact's files."""
    try:
        outputs = build(options.artifact, options.results, options.pair)
    except NoResultsError as missing:
        pair = f" for pair {options.pair}" if options.pair else ""
        run = command(options.artifact, options.pair, options.results)
        return _fail(f"no results of {options.artifact}{pair}: {missing}" + f"; run `{run}` first" * bool(run))
    except (KeyError, ValueError) as error:
        return _fail(str(error.args[0]))
    wanted = [output for output in outputs if options.only is None or isinstance(output, ONLY[options.only])]
    paths = write_all(wanted, (options.out / options.artifact).parent)
    shown = [output for output in wanted if isinstance(output, Table)]
    shown = [table for table in shown if table.findings] or shown
    print("\n".join(to_text(table, *_said(table)) for table in shown), end="")
    if paths:
        print(wrapped(_places(paths, options)))
    return _counted(len(paths), options)


def _said(table: Table) -> Iterator[str]:
    """What its marks mean, and how often each verdict stands in it."""
    if ties.note(table.frame):
        yield ties.KEY
    if counts := count_verdicts([table]):
        yield f"Against the paper: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}."


def _places(paths: Sequence[Path], options: argparse.Namespace) -> str:
    """A sentence on where the files of one artifact are."""
    own = {path.stem: path.name for path in reversed(paths) if path.suffix in (".md", ".png", ".html")}
    names = ", ".join(reversed(own.values()))
    places = (options.results / options.artifact, options.results / FOLDER, options.results)
    return f"Files in {paths[0].parent}: {names}; rows in {next(place for place in places if place.is_dir())}."


def _files(options: argparse.Namespace) -> int:
    """The figures or the tables of all artifacts that have results, without a page."""
    options.out.mkdir(parents=True, exist_ok=True)
    missing, written = True, 0
    for name in (*ARTIFACTS, *SUMMARIES, *yours(options.results)):
        built = pages.attempt(_report(options), name, ONLY[options.only])
        missing &= bool(built.missing)
        written += _listed(path for _, paths in built.written for path in paths)
    if missing:
        return _fail(f"there are no results in {options.results}; give another --results, or run `{_SMOKE}` first")
    return _counted(written, options)


def _listed(paths: Iterable[Path]) -> int:
    """Print paths as they are written; how many there are."""
    written = 0
    for path in paths:
        print(path)
        written += 1
    return written


def _counted(written: int, options: argparse.Namespace) -> int:
    """Say so where there are results and nothing was written."""
    if not written:
        where = options.artifact or f"the results in {options.results}"
        print(f"nothing was written: {where} has no {options.only or 'outputs'}", file=sys.stderr)
    return 0


def _site(options: argparse.Namespace) -> int:
    """Everything, and the pages."""
    site, paths = pages.write(_report(options))
    print(", ".join(f"{site.states[state]} {state}" for state in STATES if state in site.states))
    print("\n".join(map(str, paths)))
    return min(len(site.broken), 1)


def _report(options: argparse.Namespace) -> Report:
    return Report(options.results, options.out, options.pair)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.report", description=__doc__)
    parser.add_argument(
        "artifact", nargs="?", help=f"one of {', '.join((*ARTIFACTS, *SUMMARIES))} (default: all, and the HTML report)"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--pair", help="the runs of this pair alone, or of several with commas (default: all)")
    parser.add_argument("--only", choices=ONLY, help="write only these files, and no HTML report")
    parser.add_argument(
        "--out", type=Path, default=Path("results/report"), help="where to write (default: %(default)s)"
    )
    return parser


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
