"""Every name that generated code uses is closed to side inputs, which are named beside them."""

from __future__ import annotations

import ast

import pytest
from repo.generated import SPECS, stages, targets

from attngen.spec.reserved import is_reserved


def names_in(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=alias):
                found.add(alias or name)
            case _:
                pass
    return found


@pytest.mark.parametrize(("spec", "isa"), [(s, isa) for s in SPECS for isa in targets(s)])
def test_no_side_input_can_be_called_as_a_name_of_the_kernels(spec: str, isa: str) -> None:
    result = stages(spec, isa)
    own = {given.name for given in result.simplified.inputs if given.values is None}
    kernels = ("flash_forward.py", "split_kv.py")
    for file in result.package.files:
        if file.path in kernels:
            free = {name for name in names_in(file.text) - own if not is_reserved(name)}
            assert not free, f"{file.path}: {' '.join(sorted(free))}"
