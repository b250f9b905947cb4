"""The one Jinja environment: a template name and a typed context in, text out.

A context is a frozen dataclass whose fields are exactly the variables of its template; a missing
one is an error at once (strict undefined), a superfluous one fails a test.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jinja2
from jinja2 import meta

from attngen.resources import templates_dir


@cache
def environment() -> jinja2.Environment:
    """The environment for templates that print Python: strict, and keeping the layout."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is Python, not HTML
    )


def render(template: str, context: Any) -> str:
    """The text of `template` (a path below the templates folder) for a dataclass `context`."""
    variables = {f.name: getattr(context, f.name) for f in dataclasses.fields(context)}
    return environment().get_template(template).render(variables)


def template_variables(template: str) -> frozenset[str]:
    """The variables that `template` and what it includes read."""
    env = environment()
    seen: set[str] = set()
    variables: set[str] = set()
    queue = [template]
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        source, _, _ = env.loader.get_source(env, name)  # type: ignore[union-attr] # set above
        tree = env.parse(source)
        variables |= meta.find_undeclared_variables(tree)
        queue += [n for n in meta.find_referenced_templates(tree) if n]
    return frozenset(variables)
