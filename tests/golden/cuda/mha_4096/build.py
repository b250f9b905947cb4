"""Python to machine code, without a GPU or a driver: numba.cuda to PTX, nvJitLink to a cubin.

Machine code is kept in `__pycache__`, in files that name what they were made from.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

INSTALL = (
    "pip install 'numba-cuda[cu13]==0.30.4' 'cuda-toolkit==13.0.*' "
    "'nvidia-nvjitlink==13.0.*' 'cuda-bindings==13.0.*'"
)
PACKAGES = ("numba-cuda", "nvidia-nvjitlink", "nvidia-nvvm", "numba", "llvmlite")


class MachineCode(NamedTuple):
    """A kernel as a GPU runs it.

    Registers are those of a thread; stack and spilled bytes are those of a thread in local memory,
    which a fast kernel does not have; shared memory is that of a block.
    """

    arch: str
    entry: str
    cubin: bytes
    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int
    threads: int


@functools.cache
def machine_code(arch):
    """The kernel for an architecture such as "sm_80" or "sm_90a".

    Raises:
        ImportError: numba-cuda or nvJitLink is not installed.
    """
    context = _context(arch)
    path = Path(__file__).parent / "__pycache__" / f"flash_forward.{arch}.cubin"
    kept = _read(path, context)
    if kept is None:
        kept = link(*compile_ptx(arch), arch)
        _write(path, context, kept)
    return kept


def compile_ptx(arch):
    """(PTX, name of the entry) of the kernel.

    Raises:
        ImportError: numba-cuda is not installed.
    """
    _require("numba-cuda")
    from numba import cuda, types

    from . import flash_forward as kernel

    number = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if number is None:
        raise ValueError(f"expected an architecture such as 'sm_80', got {arch!r}")
    capability = (int(number[1]), int(number[2]), *number[3])
    ptx, _ = cuda.compile(
        kernel.forward,
        types.void(*kernel.PARAMETERS.values()),
        device=False,
        abi="numba",
        cc=capability,
        output="ptx",
        launch_bounds=(kernel.THREADS, 1),
    )
    return ptx, re.search(r"\.entry\s+([\w$]+)", ptx)[1]


def link(ptx, entry, arch):
    """The machine code of `ptx`, with what the assembler reports of it.

    Raises:
        ImportError: nvJitLink is not installed.
        RuntimeError: the assembler refuses the PTX.
    """
    _require("nvidia-nvjitlink")
    from cuda.bindings import nvjitlink

    from . import flash_forward as kernel

    options = [f"-arch={arch}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        text = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "flash_forward")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise RuntimeError(f"{arch}: {log.decode(errors='replace')}") from error
    finally:
        nvjitlink.destroy(handle)
    report = log.decode(errors="replace")

    def figure(pattern):
        return sum(map(int, re.findall(pattern, report)))

    return MachineCode(
        arch=arch,
        entry=entry,
        cubin=bytes(cubin),
        registers=figure(r"Used (\d+) registers"),
        stack_bytes=figure(r"(\d+) bytes stack frame"),
        spilled_bytes=figure(r"(\d+) bytes spill stores"),
        shared_bytes=kernel.SHARED_BYTES,
        threads=kernel.THREADS,
    )


def _require(package):
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"kernels for CUDA need {package}: {INSTALL}") from None


def _context(arch):
    """Everything that shapes the machine code, as a digest."""
    total = hashlib.sha256(arch.encode())
    for package in PACKAGES:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        total.update(f"{package} {version}\n".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.digest()


def _read(path, context):
    """What `_write` kept at `path` for this very context, or None."""
    try:
        sealed = path.read_bytes()
        digest, payload = sealed[:32], sealed[32:]
        if hashlib.sha256(context + payload).digest() != digest:
            return None
        figures, _, cubin = payload.partition(b"\n")
        return MachineCode(cubin=cubin, **json.loads(figures))
    except (OSError, ValueError, TypeError):
        return None


def _write(path, context, code):
    """Keep `code` in one step; without a folder that can be written, it is made again."""
    figures = {name: value for name, value in code._asdict().items() if name != "cubin"}
    payload = json.dumps(figures).encode() + b"\n" + code.cubin
    try:
        path.parent.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(context + payload).digest() + payload)
        os.replace(name, path)
    except OSError:
        return
