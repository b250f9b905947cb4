"""CUDA kernels are compiled with numba-cuda, which not every machine has; no GPU is needed."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("numba_cuda") else ["test_*.py"]
