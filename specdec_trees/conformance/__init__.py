"""Is a verification function of speculative decoding lossless? `check` asks anybody's, not only this project's."""

from specdec_trees.conformance.calls import NonsenseError
from specdec_trees.conformance.check import check
from specdec_trees.conformance.coins import Coins
from specdec_trees.conformance.report import REFUSED, Failure, Report

__all__ = ["REFUSED", "Coins", "Failure", "NonsenseError", "Report", "check"]
