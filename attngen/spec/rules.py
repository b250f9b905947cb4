"""Rules that relate the keys of a spec to each other, and the Spec that keeps them all.

Input: checked values and the tree they came from, for places. Output: a Spec, or every rule that is
broken. A rule whose keys are missing or already wrong stays silent.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from attngen.dtypes import DTYPES, FLOAT32, DType
from attngen.errors import Diagnostic
from attngen.ir.attention import Output
from attngen.source import Span
from attngen.spec.buckets import T5Buckets
from attngen.spec.clauses import read_clauses
from attngen.spec.fields import SPEC
from attngen.spec.model import (
    Activation,
    Bias,
    Causal,
    Scale,
    ScheduleOverride,
    Scope,
    Spec,
    Window,
)
from attngen.spec.nodes import Fields, node_at, shorten, span_of
from attngen.spec.suggest import divisors_near, either, nearest
from attngen.spec.values import Value

ADDRESS_SPACE = 2**47  # bytes a process can address on x86-64 and most arm64 systems
_KEYS = tuple(f.name for f in SPEC.fields)


@dataclass
class Rules:
    """One spec under judgement.

    Attributes:
        root: the tree, asked for places and for whether a key was given at all.
        values: the keys that passed the check of values.
        default_name: the name where the spec gives none: a file's stem.
        complete: False where a parent could not be read, so that a missing key proves nothing.
        diagnostics: the rules found broken.
    """

    root: Fields
    values: Mapping[str, Value]
    default_name: str
    complete: bool
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def build(self) -> Spec | None:
        """The Spec, to be used if no rule is broken; None where a size is not known."""
        name, scope = self.name(), self.scope()
        heads, kv_heads = self.heads()
        head_dim = self.head_dim(heads)
        wide = head_dim and head_dim * (1 + self.given("differential"))
        value_dim = self.size("value_dim", wide)
        dtype = DTYPES[str(self.values.get("dtype", FLOAT32.name))]
        scale, softcap = self.scale(dtype, heads), self.softcap(dtype)
        causal = self.causal()
        clauses = read_clauses(self.root, self.values)
        self.diagnostics += clauses.diagnostics
        if heads is None or kv_heads is None or head_dim is None or value_dim is None:
            return None
        spec = Spec(
            name=name,
            scope=scope,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=value_dim,
            d_model=self.size("d_model", None),
            description=str(self.values.get("description", "")),
            causal=causal,
            window=self.window(),
            scale=scale,
            softcap=softcap,
            score=clauses.score,
            bias=cast(Bias | None, self.values.get("bias")),
            t5=self.t5(causal),
            mask=clauses.mask,
            prefix=self.size("prefix", None),
            chunk=self.size("chunk", None),
            dilation=self.size("dilation", 1) or 1,
            global_tokens=self.size("global_tokens", 0) or 0,
            inputs=clauses.inputs,
            parameters=clauses.parameters,
            sink=self.values.get("sink") is True,
            activation=self.activation(),
            differential=self.differential(dtype, heads),
            activation_bias=cast(float | None, self.values.get("activation_bias")),
            dtype=dtype,
            outputs=cast(tuple[Output, ...], self.values.get("outputs", ("out",))),
            schedule=self.schedule(),
        )
        self.memory(spec)
        return spec

    def report(
        self, code: str, key: str, message: str, hint: str = "", note: str = "", at: str = ""
    ) -> None:
        """Adds a broken rule about `key`, placed at the value of `at` or of `key` itself."""
        span = self.span(at or key)
        self.diagnostics.append(Diagnostic(code, message, span, key, note, hint))

    def span(self, key: str) -> Span | None:
        """Where the value of `key` stands; the start of the spec where it is not given."""
        found = span_of(self.root, key)
        if found is not None and key not in self.root.entries:
            return Span(found.source, found.line, found.column)
        return found

    def given(self, key: str) -> bool:
        """Whether the spec has `key`, right or wrong."""
        return key in self.root.entries

    def right(self, key: str) -> bool:
        """Whether `key` has a right value, its default included."""
        return key in self.values or not self.given(key)

    def size(self, key: str, default: int | None) -> int | None:
        """The size `key`, or `default` where it is not given; None where it is wrong."""
        value = self.values.get(key)
        if isinstance(value, int):
            return value
        return None if self.given(key) else default

    def missing(self, key: str, hint: str) -> None:
        """Reports that `key` must be given, unless another key looks like it misspelt."""
        misspelt = any(k not in _KEYS and nearest(k, _KEYS) == key for k in self.root.entries)
        if self.complete and not misspelt:
            self.report("E-MISSING", key, f"'{key}' is missing", hint)

    def name(self) -> str:
        """The name given, or the file's stem."""
        name = self.values.get("name")
        if isinstance(name, str):
            if keyword.iskeyword(name):
                message = f"'name' must be a Python identifier, and {name} is a keyword"
                self.report("E-NAME", "name", message, f"such as {name}_attention")
            return name
        stem = self.default_name
        usable = stem.isascii() and stem.isidentifier() and len(stem) <= 64
        if not self.given("name") and (not usable or keyword.iskeyword(stem)):
            self.report(
                "E-NAME",
                "name",
                f"the file's name {shorten(stem)} cannot name the kernels, which need a Python "
                "identifier",
                "give the spec a name, such as name: my_attention",
            )
        return stem

    def scope(self) -> Scope:
        """The scope given, or what `d_model` implies."""
        implied: Scope = "layer" if self.given("d_model") else "core"
        scope = cast(Scope, self.values.get("scope", implied))
        if scope == "core" and self.given("d_model"):
            message = "a core takes q, k and v and has no 'd_model'"
            hint = "take out 'd_model' and give 'head_dim', or write scope: layer"
            self.report("E-SCOPE", "scope", message, hint)
        if scope == "layer" and not self.given("d_model") and self.complete:
            message = "a layer needs 'd_model', the width of x"
            self.report("E-SCOPE", "scope", message, "add d_model, or write scope: core")
        return scope

    def heads(self) -> tuple[int | None, int | None]:
        """`heads` and `kv_heads`, which must divide it."""
        heads = self.size("heads", None)
        if not self.given("heads"):
            d_model, head_dim = self.size("d_model", None), self.size("head_dim", None)
            whole = d_model and head_dim and d_model % head_dim == 0
            example = d_model // head_dim if whole and d_model and head_dim else 32
            self.missing("heads", f"add the number of query heads, such as heads: {example}")
        kv_heads = self.size("kv_heads", heads)
        if heads is None or kv_heads is None:
            return heads, kv_heads
        legal = either([str(d) for d in divisors_near(heads, kv_heads)])
        if kv_heads > heads:
            message = f"'kv_heads' must not exceed 'heads', and {kv_heads} is more than {heads}"
            self.report("E-HEADS", "kv_heads", message, f"use {legal}")
        elif heads % kv_heads:
            message = f"'kv_heads' must divide 'heads', and {kv_heads} does not divide {heads}"
            self.report("E-HEADS", "kv_heads", message, f"use {legal}")
        return heads, kv_heads

    def head_dim(self, heads: int | None) -> int | None:
        """`head_dim`, or ``d_model / heads`` where that is whole."""
        if self.given("head_dim"):
            return self.size("head_dim", None)
        d_model = self.size("d_model", None)
        if not self.given("d_model"):
            if self.values.get("scope") != "layer":
                self.missing("head_dim", "add the width of a head, such as head_dim: 128")
            return None
        if d_model is None or heads is None:
            return None
        maps = 1 + self.given("differential")
        if d_model % (maps * heads):
            whole = d_model // maps if d_model % maps == 0 else 1
            legal = either([str(d) for d in divisors_near(whole, heads)])
            twice = "twice " * (maps > 1)
            self.report(
                "E-HEADS",
                "heads",
                f"{twice}'heads' must divide 'd_model' where 'head_dim' is not given, and {twice}"
                f"{heads} does not divide {d_model}",
                f"use {legal}, or give 'head_dim'",
            )
            return None
        return d_model // (maps * heads)

    def scale(self, dtype: DType, heads: int | None) -> Scale | None:
        """`scale`, which the accumulator must be able to hold, for each head where it is a list."""
        value = cast(Scale | None, self.values.get("scale"))
        return self.of_heads("scale", value, dtype, heads)

    def differential(self, dtype: DType, heads: int | None) -> Scale | None:
        """The lambda of `differential`, whose two maps have no sink in common."""
        section = self.values.get("differential")
        if not isinstance(section, dict):
            return None
        if self.values.get("sink") is True:
            message = "a sink joins one softmax, and 'differential' makes two for each head"
            self.report("E-DIFFERENTIAL", "sink", message, "take out one of them")
        node = node_at(self.root, "differential")
        if isinstance(node, Fields) and "lambda" not in node.entries:
            message = "'differential' needs 'lambda', what the second map is multiplied by"
            hint = "such as differential: {lambda: 0.8}"
            self.report("E-MISSING", "differential", message, hint)
        value = cast(Scale | None, section.get("lambda"))
        return self.of_heads("differential.lambda", value, dtype, heads)

    def of_heads(
        self, key: str, value: Scale | None, dtype: DType, heads: int | None
    ) -> Scale | None:
        """`value` of `key`, for each head where it is a list; the accumulator must hold it."""
        if value is None or isinstance(value, str):
            return value
        largest = float(np.finfo(dtype.accumulator).max) / 2
        numbers = value if isinstance(value, tuple) else (value,)
        at, _, _ = key.partition(".")
        for number in numbers:
            if abs(number) > largest:
                message = f"'{key}' must fit {dtype.accumulator}, and {number:g} does not"
                self.report("E-RANGE", at, message, f"use at most {largest:.1e} in size")
        if isinstance(value, tuple) and heads is not None and len(value) != heads:
            message = f"'{key}' must list one number for each of {heads} heads, not {len(value)}"
            self.report("E-SHAPE", at, message)
        return value

    def t5(self, causal: Causal) -> T5Buckets | None:
        """The buckets of ``bias: t5``; some of them must be left to share."""
        given = self.values.get("t5", {})
        if self.values.get("bias") != "t5":
            if self.given("t5") and (self.values.get("bias") or not self.given("bias")):
                message = "'t5' says what the buckets of bias: t5 hold, and there is no such bias"
                self.report("E-BIAS", "t5", message, "add bias: t5, or take 't5' out")
            return None
        if not isinstance(given, dict):
            return None
        options: dict[str, Any] = {"bidirectional": causal == "none", **given}
        found = T5Buckets(**options)
        sides = "two sides" if found.bidirectional else "one side"
        if found.exact < 1 or found.buckets % (1 + found.bidirectional):
            message = f"'t5.buckets' must be shared out to {sides}, and {found.buckets} cannot be"
            hint = f"use an even number, {4 if found.bidirectional else 2} or more"
            self.report("E-BIAS", "t5", message, hint, at="t5")
        elif found.max_distance <= found.exact:
            message = (
                f"'t5.max_distance' must be beyond the {found.exact} distances that have a bucket "
                f"each, and is {found.max_distance}"
            )
            self.report("E-BIAS", "t5", message, f"use {found.exact + 1} or more")
        else:
            return found
        return None

    def activation(self) -> Activation:
        """`activation`, with nothing beside it that belongs to another one."""
        activation = cast(Activation, self.values.get("activation", "softmax"))
        sink, outputs = self.values.get("sink") is True, self.values.get("outputs", ())
        softmax = activation.startswith("softmax")
        if sink and not softmax:
            message = f"a sink joins the denominator of a softmax, and {activation} has none"
            self.report("E-ACTIVATION", "sink", message, "take out 'sink', or 'activation'")
        elif sink and activation != "softmax":
            message = "'softmax_off_by_one' is a sink whose logit is 0, and 'sink' is another one"
            self.report("E-ACTIVATION", "sink", message, "keep one of the two")
        if not softmax and isinstance(outputs, tuple) and "lse" in outputs:
            message = f"the log-sum-exp is that of a softmax, and {activation} sums nothing up"
            self.report("E-ACTIVATION", "outputs", message, "write outputs: [out]")
        if self.given("activation_bias") and activation != "sigmoid" and self.right("activation"):
            message = f"'activation_bias' is added to the scores of a sigmoid, not of {activation}"
            hint = "add it in 'score', or write activation: sigmoid"
            self.report("E-ACTIVATION", "activation_bias", message, hint)
        return activation

    def softcap(self, dtype: DType) -> float | None:
        """`softcap`, which the accumulator must be able to hold and to divide by."""
        value = self.values.get("softcap")
        if not isinstance(value, float):
            return None
        limits = np.finfo(dtype.accumulator)
        least, most = float(limits.tiny), float(limits.max) / 2
        if not least <= value <= most:
            message = f"'softcap' must fit {dtype.accumulator}, and {value:g} does not"
            self.report("E-RANGE", "softcap", message, f"use {least:.1e} to {most:.1e}")
        return value

    def causal(self) -> Causal:
        """The alignment of the causal mask; ``true`` is ``bottom_right``."""
        value = self.values.get("causal", "prefix" in self.values)
        if value is False and "prefix" in self.values:
            message = "'prefix' is what a causal mask leaves open, and 'causal' is false"
            self.report("E-CAUSAL", "prefix", message, "take out 'prefix', or write causal: true")
        if isinstance(value, bool):
            return "bottom_right" if value else "none"
        return cast(Literal["bottom_right", "top_left"], value)

    def window(self) -> Window | None:
        """The window, with a side that is not given open."""
        sides = self.values.get("window")
        if not isinstance(sides, dict):
            return None
        return Window(cast(int, sides.get("left", -1)), cast(int, sides.get("right", -1)))

    def schedule(self) -> tuple[ScheduleOverride, ...]:
        """Every override with its place."""
        targets = self.values.get("schedule")
        if not isinstance(targets, dict):
            return ()
        return tuple(
            ScheduleOverride(target, name, value, span_of(self.root, "schedule", target, name))
            for target, overrides in targets.items()
            if isinstance(overrides, dict)
            for name, value in overrides.items()
            if isinstance(value, (int, str))
        )

    def memory(self, spec: Spec) -> None:
        """Refuses a spec whose smallest call, one token, cannot be addressed."""
        per_width = spec.query_heads * spec.head_dim + spec.heads * spec.value_dim
        per_width += spec.key_heads * spec.head_dim + spec.kv_heads * spec.value_dim
        elements = per_width * (1 + (spec.d_model or 0)) + 2 * (spec.d_model or 0)
        size = elements * spec.dtype.itemsize
        if size <= ADDRESS_SPACE:
            return
        sizes = {k: self.size(k, 0) or 0 for k in _SIZES if self.given(k)}
        key = max(sizes, key=lambda k: sizes[k])
        what = "one token and the weights need" if spec.d_model else "one token needs"
        self.report(
            "E-SIZE",
            key,
            f"{what} {size / 2**40:,.0f} TiB, more than the {ADDRESS_SPACE >> 40} TiB that a "
            "process can address",
            f"make '{key}' smaller",
        )


_SIZES = ("d_model", "heads", "kv_heads", "head_dim", "value_dim")
