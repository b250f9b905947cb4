"""Each template reads exactly the fields of its context, and says what they are."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import defaultdict
from typing import Any

import jinja2
import pytest
from repo.generated import SPECS, stages, targets
from report.series import grid, write_series

import attngen.backends.numba_cpu.emit
import attngen.backends.numba_cuda.emit  # noqa: F401 - its modules are watched too
from attngen.backends.dispatch import emit
from attngen.pictures import draw_dataflow
from attngen.render import environment, render, template_variables
from attngen.report import report_page
from attngen.resources import templates_dir

TEMPLATES = sorted(
    path.relative_to(templates_dir()).as_posix() for path in templates_dir().rglob("*.jinja")
)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[type]]:
    """The types of the contexts that each template is rendered with, over all specs and targets."""
    seen: dict[str, set[type]] = defaultdict(set)

    def observe(template: str, context: Any) -> str:
        seen[template].add(type(context))
        return render(template, context)

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            ours = name.startswith("attngen.") and name != render.__module__
            if ours and getattr(module, "render", None) is render:
                patch.setattr(module, "render", observe)
        for spec in SPECS:
            for isa in targets(spec):
                found = stages(spec, isa)
                emit(found.kernel, found.schedule, found.target)
        draw_dataflow(stages("mha_4096", "avx512").ir)
        report_page(write_series(tmp_path_factory.mktemp("series"), grid()))
    return dict(seen)


def test_every_template_is_used(contexts: dict[str, set[type]]) -> None:
    included = {
        name
        for template in contexts
        for name in jinja2.meta.find_referenced_templates(_tree(template))
    }
    assert set(TEMPLATES) == set(contexts) | included


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_reads_exactly_its_context(
    template: str, contexts: dict[str, set[type]]
) -> None:
    for context in contexts.get(template, ()):
        fields = {field.name for field in dataclasses.fields(context)}
        assert template_variables(template) == fields


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_begins_by_saying_what_it_reads(template: str) -> None:
    variables = template_variables(template)
    if not variables:
        return
    text = (templates_dir() / template).read_text("utf-8")
    comment = re.match(r"\{#\n  Variables\n(.*?)#\}", text, re.DOTALL)
    assert comment, "it must begin with a comment that lists its variables"
    words = set(re.findall(r"\w+", comment[1]))
    assert variables <= words, f"not described: {sorted(variables - words)}"


def test_a_missing_variable_is_an_error_at_once() -> None:
    @dataclasses.dataclass(frozen=True)
    class Incomplete:
        lanes: int = 16

    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        render("numba_cpu/simd.py.jinja", Incomplete())


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_computes_nothing(template: str) -> None:
    """Arithmetic, filters and string building belong in the context, where they are typed."""
    nodes = jinja2.nodes
    computing = (
        *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
        *(nodes.Concat, nodes.Filter, nodes.Call, nodes.Assign, nodes.Neg),
    )
    found = [
        f"line {node.lineno}: {type(node).__name__}"
        for kind in computing
        for node in _tree(template).find_all(kind)
    ]
    assert not found


def _tree(template: str) -> jinja2.nodes.Template:
    env = environment()
    assert env.loader is not None
    return env.parse(env.loader.get_source(env, template)[0])
