"""What the CUDA backend needs beside attngen's own dependencies; ``attngen[cuda]`` has the same."""

from __future__ import annotations

# Later versions of the toolkit emit PTX that drivers of CUDA 13.0 do not read.
REQUIREMENTS = (
    "numba-cuda[cu13]==0.30.4",
    "cuda-toolkit==13.0.*",
    "nvidia-nvjitlink==13.0.*",
    "cuda-bindings==13.0.*",
)

INSTALL = "pip install " + " ".join(f"'{requirement}'" for requirement in REQUIREMENTS)
