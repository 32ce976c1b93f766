"""The user's own `conf/` before the package's; Hydra takes such plugins from this namespace alone."""

from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.plugins.search_path_plugin import SearchPathPlugin

from specdec_trees.locations import CONF, own_conf


class OwnConf(SearchPathPlugin):
    """Puts `conf/` of the working directory before the package's configs, and leaves other programs' alone."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Hydra calls this where it makes the search path of a program."""
        package, own = SearchPathQuery("main", str(CONF)), own_conf().resolve()
        if own.is_dir() and own != CONF and search_path.find_first_match(package) >= 0:
            search_path.prepend("specdec", f"file://{own}", package)
