"""What a package says it offers, it offers."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import rtmem

PACKAGES = ["rtmem", *(module.name for module in pkgutil.walk_packages(rtmem.__path__, "rtmem.") if module.ispkg)]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_resolves(name: str) -> None:
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert sorted(set(exported)) == sorted(exported), "a name is exported twice"
    for public in exported:
        assert getattr(package, public) is not None


def test_lazy_names_are_the_exported_ones() -> None:
    lazy = set(rtmem._HOME)
    assert lazy | {"__version__"} == set(rtmem.__all__)
    assert dir(rtmem) == rtmem.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rtmem.no_such_name
