"""`eval "$(python -m specdec_trees.completion)"`: bash, and zsh behind bashcompinit, then complete `specdec`.

Tasks and artifacts are completed by name. Hydra completes options as it does for its own programs.
"""

import os
import sys
from collections.abc import Iterator

from specdec_trees.cli import TASKS
from specdec_trees.locations import CONF, yamls

HYDRA = ("smoke", "run", "record", "plan", "reproduce", "latency")
"""Tasks that take options of `conf/`."""
ARTIFACTS = ("reproduce", "report")
"""Tasks that take names of artifacts."""


def candidates(line: str) -> Iterator[str]:
    """What the last word of a command line up to the cursor may become."""
    words = line.split()[1:] + [""] * line.endswith(" ")
    if len(words) < 2:
        yield from (f"{task} " for task in TASKS if task.startswith("".join(words)))
        return
    task, last = words[0], words[-1]
    if task in ARTIFACTS and "=" not in last:
        yield from (f"{name} " for name in yamls("experiment") if name.startswith(last))
    if task in HYDRA:
        options = " ".join(word for word in words[1:-1] if "=" in word)
        yield from _options(f"{options} {last}".strip() + " " * (not last))


def _options(overrides: str) -> list[str]:
    """Hydra's own completion of overrides."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra._internal.utils import create_config_search_path

    from specdec_trees.configs import variants

    variants.register()
    found: list[str] = BashCompletion(ConfigLoaderImpl(create_config_search_path(str(CONF))))._query(
        "config", overrides
    )
    return found


def main() -> None:
    """Print what may stand in place of the word that the shell names; without a shell, what it evaluates."""
    if "COMP_LINE" not in os.environ:
        print("complete -o nospace -o default -C 'specdec completion' specdec")
        return
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    _, word, _ = sys.argv[-3:]  # what stands behind the last = or :, which begin words of the shell's
    kept = len(line.rpartition(" ")[2]) - len(word)
    for candidate in sorted({*candidates(line)}):
        print(candidate[kept:])


if __name__ == "__main__":
    main()
