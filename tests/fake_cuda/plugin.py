"""The fake device for a run of pytest; without a compiler its tests are skipped and say so."""

import pytest

from fake_cuda.library import library, unavailable

REASON = unavailable()
if REASON is None:
    library()
    from fake_cuda.torch_cuda import install  # which imports torch

    install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything where there is none."""
    for item in items if REASON else ():
        item.add_marker(pytest.mark.skip(reason=str(REASON)))
