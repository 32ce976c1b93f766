"""Where configs and models are: beside the user's work, and in the package."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CONF = (PACKAGE / "conf").resolve()
"""The package's configs: in a checkout a link to its `conf/`."""
IN_CHECKOUT = CONF.parent != PACKAGE


def own_conf() -> Path:
    """The user's own configs, which hide those of the package that have the same names."""
    return Path.cwd() / "conf"


def yamls(group: str = ".", *, own: bool = True) -> dict[str, Path]:
    """The yamls in a folder of configs by name, of the package's and, unless `own` is false, of the user's own."""
    folders = (CONF / group, own_conf() / group) if own else (CONF / group,)
    named = {path.relative_to(folder): path for folder in folders for path in folder.rglob("*.yaml")}
    return {path.with_suffix("").as_posix(): named[path] for path in sorted(named)}


def root() -> Path:
    """Where folders of weights begin that a config names: the checkout, else the working directory."""
    return CONF.parent if IN_CHECKOUT else Path.cwd()


def hint(make: str, specdec: str) -> str:
    """The next command for whoever has a checkout, or the package alone."""
    return make if IN_CHECKOUT else specdec
