"""The shape of the package: layers of modules, who may use which library, sizes, docstrings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from repo.generated import ROOT

PACKAGE = ROOT / "attngen"

# From the ground up; an entry is a module or a whole subpackage. Imports go down or stay level.
LAYERS: tuple[set[str], ...] = (
    {"errors", "source", "dtypes", "fingerprint", "resources", "formatting", "timing"},
    {"targets", "ir"},
    {
        "spec",
        "reference",
        "layer_reference",
        "accuracy",
        "contract",
        "costs",
        "side_data",
        "call_checks",
        "call_extras",
        "dense_mask",
        "example_inputs",
    },
    {"passes", "mask_tiles", "lowering", "weights"},
    {"render"},
    {"backends"},
    {"cache", "loader"},
    {
        *("attention", "interpreter", "driver", "explain", "inputs", "check", "trial", "doctor"),
        *("bench", "kernels", "tile_census", "tile_maps", "tile_picture", "tile_text", "pictures"),
        *("machine", "report", "sweeps"),
    },
    {"cli", "interop", "__init__"},
)

# What only these may import; everything else that is not listed is an unexpected dependency.
LIBRARIES = {
    "yaml": {"spec"},
    "jinja2": {"render"},
    "typer": {"cli"},
    "rich": {"cli"},
    "platformdirs": {"cache"},
    "filelock": {"sweeps"},
    "ml_dtypes": {"dtypes"},
    "numba": {"backends", "cache", "bench", "cli", "sweeps"},
    "cuda": {"backends"},
    "llvmlite": {"backends", "cache", "bench"},
    "plotly": {"report"},
    "matplotlib": {"pictures", "tile_picture"},
    "distributed": {"sweeps"},
    "pyarrow": {"sweeps"},
    "torch": {"bench"},
    "onnx": {"bench", "interop"},
    "onnxruntime": {"bench"},
}

# Started as programs of their own, which use attngen as anybody does.
SCRIPTS = {"bench.start_script", "bench.memory_script"}


def module_name(path: Path) -> str:
    """``ir.expr`` for attngen/ir/expr.py, ``__init__`` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room(module: str) -> str:
    """The entry of LAYERS that `module` belongs to."""
    return module.partition(".")[0]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Everything that `path` imports, at once or inside functions, by absolute name.

    What stands under ``if TYPE_CHECKING`` is for annotations and never runs.
    """

    def visit(node: ast.AST) -> Iterator[str]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                for child in orelse:
                    yield from visit(child)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"{path} imports relatively"
                yield from (f"{module}.{name.name}" for name in names)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from visit(child)

    yield from visit(tree(path))


def own_imports(path: Path) -> set[str]:
    """The modules of attngen that `path` imports."""
    found = set()
    for name in imports(path):
        if name == "attngen":
            found.add("__init__")
        elif name.startswith("attngen."):
            inner = name.removeprefix("attngen.")
            while inner and inner not in MODULES:
                inner = inner.rpartition(".")[0]
            found.add(inner or "__init__")
    return found


def test_every_module_has_a_layer() -> None:
    rooms = {room(module) for module in MODULES}
    placed = [name for layer in LAYERS for name in layer]
    assert sorted(placed) == sorted(rooms), "add the module to LAYERS, or take it out there"


def test_imports_never_go_up() -> None:
    height = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    upward = [
        f"{module} (layer {height[room(module)]}) imports {other} ({height[room(other)]})"
        for module, path in MODULES.items()
        if module not in SCRIPTS
        for other in sorted(own_imports(path))
        if height[room(other)] > height[room(module)]
    ]
    assert not upward


def test_rooms_do_not_import_each_other_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module not in SCRIPTS:
            others = {room(other) for other in own_imports(path)}
            graph.setdefault(room(module), set()).update(others - {room(module)})
    list(TopologicalSorter(graph).static_order())


def test_a_backend_never_sees_yaml() -> None:
    front = {"spec.model"}
    for module, path in MODULES.items():
        if room(module) == "backends":
            seen = {m for m in own_imports(path) if room(m) == "spec"}
            assert seen <= front, f"{module} imports {sorted(seen - front)}"


def test_libraries_stay_in_their_rooms() -> None:
    expected = {"numpy", "attngen", *sys.stdlib_module_names}
    wrong = [
        f"{module} imports {library}"
        for module, path in MODULES.items()
        for library in sorted({name.partition(".")[0] for name in imports(path)})
        if library not in expected and room(module) not in LIBRARIES.get(library, ())
    ]
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short_and_says_what_it_is(module: str) -> None:
    path = MODULES[module]
    assert ast.get_docstring(tree(path)), f"{path} has no docstring"
    lines = path.read_text("utf-8").count("\n")
    assert lines <= 400, f"{path} has {lines} lines: look for a seam"
