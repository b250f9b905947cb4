"""Compiled attentions with kernels of a few lines, so that calls alone are tested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_kernels import compile_fake

from attngen.attention import Attention
from attngen.dtypes import DTYPES


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Any]:
    """``build(heads=…, d_model=…, dtype="float64", sink=True)``: a fake compiled attention."""

    def build(**options: Any) -> Attention:
        if "dtype" in options:
            options["dtype"] = DTYPES[options["dtype"]]
        return compile_fake(str(tmp_path), options)

    return build
