"""What mkdocs calls to make a site of the repository: every page keeps its place, so that links lead where they led.

Pages are the texts at the root, those of `docs/` and of `specdec_trees/`, the reference results with what `make drawn`
made of them, and a page of `specdec_core` for each of its modules, from its docstrings.
"""

import ast
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "specdec_core"
REPORT = "results/reference/report"
PATTERNS = ("*.md", "docs/*.md", "specdec_trees/**/README.md", "results/reference/**/*.md", f"{REPORT}/**/*.*")
SITE = "../../deployments"
"""Where code hosts link to a published site, from the repository's root."""
_SPAN = re.compile(r"(?<![`\[])`(\w+/\w+)`(?!`)")
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def pages() -> list[str]:
    """Paths of all texts and of all that is drawn, from the repository's root."""
    return sorted({path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)})


def modules() -> list[str]:
    """Names of the modules and packages of `specdec_core`."""
    packages = [path.parent.name for path in CORE.glob("*/__init__.py")]
    return sorted([*packages, *(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")])


def on_config(config: Any) -> Any:
    """The contents: others in `docs/` join by being there."""
    docs = [page for page in pages() if page.startswith("docs/")]
    api = [{"Glossary": "api/index.md"}, *({name: f"api/{name}.md"} for name in modules())]
    config.nav = [{"Home": "README.md"}, "ARCHITECTURE.md", "CONTRIBUTING.md", *docs, "results/reference/README.md"]
    config.nav += ["CHANGELOG.md", {"API": api}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages, and one of the API for each module."""
    from mkdocs.structure.files import File

    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for page in pages():
        files.append(File(page, str(ROOT), config.site_dir, config.use_directory_urls))
    glossary = ast.get_docstring(ast.parse((CORE / "__init__.py").read_text(encoding="utf-8")))
    texts = {"index": f"# specdec_core\n\n```text\n{glossary}\n```\n"}
    texts |= {name: f"# {name}\n\n::: specdec_core.{name}\n" for name in modules()}
    for name, text in texts.items():
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text with links that a site can follow."""
    return linked(markdown, page.file.src_uri)


def linked(markdown: str, page: str) -> str:
    """The text with links within the site.

    An artifact's name leads to its page and the published site's address to the report, a folder to its README; a file
    that is no page is named without a link; other links are as they were.
    """
    known, here = set(pages()), Path(page).parent

    def follow(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        path = os.path.normpath(here / target)
        if path == SITE:
            return f"[{text}]({os.path.relpath(f'{REPORT}/index.html', here)})"
        if f"{path}/README.md" in known:
            return f"[{text}]({target.rstrip('/')}/README.md{anchor})"
        return text if path not in known and (ROOT / path).exists() else link[0]

    def lead(name: re.Match[str]) -> str:
        drawn = (path for suffix in (".md", ".html") if (path := f"{REPORT}/{name[1]}{suffix}") in known)
        path = next(drawn, None)
        return f"[{name[0]}]({os.path.relpath(path, here)})" if path else name[0]

    return _SPAN.sub(lead, _LINK.sub(follow, markdown))
