"""PTX text to a `Module`. Knows the grammar, not what instructions mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import cast

from ptx.module import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Negated,
    Operand,
    Pair,
    Parameter,
    PtxError,
    Register,
    Special,
    Symbol,
    Variable,
    Vector,
    dtype_of,
)

NAME = r"[A-Za-z_$%][\w$]*"
LINE_DIRECTIVES = re.compile(r"\.(loc|file|version|target|address_size|section)\b[^\n]*")
LABEL = re.compile(rf"({NAME})\s*:(?!:)")
PARAMETER = re.compile(rf"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\b[^,)]*?\s)?({NAME})")
VARIABLE = re.compile(
    rf"\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+({NAME})\s*(\[(\d*)\])?"
    r"\s*(?:=\s*(.+))?",
    re.DOTALL,
)
ENTRY = re.compile(rf"\.entry\s+({NAME})\s*(?:\(([^)]*)\))?([^{{]*)\{{")


def parse(text: str) -> Module:
    """The module that `text` says. Raises PtxError where it is not understood."""
    text = blank_comments(text)
    version = re.search(r"\.version\s+([\d.]+)", text)
    target = re.search(r"\.target\s+(\w+)", text)
    kernels: dict[str, Kernel] = {}
    outside, position = [], 0
    bodies = []
    for match in ENTRY.finditer(text):
        end = closing_brace(text, match.end() - 1)
        outside.append(text[position : match.start()])
        bodies.append((match, end))
        position = end + 1
    outside.append(text[position:])
    globals_ = tuple(module_variables("".join(outside)))
    for match, end in bodies:
        body = Body(text, match.end(), end, globals_)
        limit = re.search(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)", match[3])
        threads = 1
        for size in (limit[1] if limit else "").replace(",", " ").split():
            threads *= int(size)
        kernels[match[1]] = Kernel(
            name=match[1],
            parameters=tuple(Parameter(n, t) for t, n in PARAMETER.findall(match[2] or "")),
            instructions=tuple(body.instructions),
            labels=body.labels,
            registers=body.registers,
            variables=(*globals_, *body.variables),
            max_threads=threads if limit else None,
        )
    if not kernels:
        raise PtxError("no .entry in this text")
    return Module(version[1] if version else "", target[1] if target else "", kernels)


def blank_comments(text: str) -> str:
    """`text` with comments as spaces, so that lines and columns stay."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def closing_brace(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    raise PtxError("a brace is not closed")


def module_variables(text: str) -> list[Variable]:
    statements = LINE_DIRECTIVES.sub("", text).split(";")
    return [variable(m) for m in map(VARIABLE.search, statements) if m is not None]


def variable(match: re.Match[str]) -> Variable:
    space, align, type_name, name, brackets, count, values = match.groups()
    item = dtype_of(type_name).itemsize
    extern = brackets is not None and not count
    size = None if extern else item * int(count or 1)
    data = None
    if values is not None:
        numbers = [int(x, 0) for x in values.strip().strip("{}").split(",")]
        data = b"".join((n & ((1 << 8 * item) - 1)).to_bytes(item, "little") for n in numbers)
        data = data.ljust(size or 0, b"\0")
    return Variable(name, space, int(align or item), size, data)


@dataclass
class Body:
    """One kernel's statements, read in order; names declared in a scope end with it."""

    text: str
    start: int
    end: int
    globals: tuple[Variable, ...]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    scopes: list[dict[str, str]] = field(default_factory=list)
    opened: int = 0
    source: int | None = None

    def __post_init__(self) -> None:
        at, line, counted = self.start, self.text.count("\n", 0, self.start) + 1, self.start
        while at < self.end:
            character = self.text[at]
            if character.isspace() or character == ";":
                at += 1
                continue
            line += self.text.count("\n", counted, at)
            counted = at
            if (label := LABEL.match(self.text, at)) is not None:
                self.labels[label[1]] = len(self.instructions)
                at = label.end()
            elif (directive := LINE_DIRECTIVES.match(self.text, at)) is not None:
                if directive[1] == "loc":
                    self.source = int(directive[0].split()[2])
                at = directive.end()
            elif character in "{}":
                self.scope(character)
                at += 1
            else:
                semicolon = self.text.index(";", at)
                self.statement(" ".join(self.text[at:semicolon].split()), line)
                at = semicolon + 1

    def scope(self, brace: str) -> None:
        if brace == "{":
            self.opened += 1
            self.scopes.append({})
        else:
            self.scopes.pop()

    def statement(self, text: str, line: int) -> None:
        if text.startswith(".reg"):
            self.declare(text, line)
        elif (match := VARIABLE.match(text)) is not None:
            self.variables.append(variable(match))
        elif not text.startswith("."):
            self.instructions.append(self.instruction(text, line))

    def declare(self, text: str, line: int) -> None:
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)", text)
        if match is None:
            raise PtxError(f"line {line}: {text!r}")
        for name in match[2].replace(" ", "").split(","):
            if (several := re.match(r"(.+)<(\d+)>$", name)) is not None:
                for number in range(int(several[2])):
                    self.registers[f"{several[1]}{number}"] = match[1]
            else:
                unique = f"{name}@{self.opened}" if self.scopes else name
                self.registers[unique] = match[1]
                if self.scopes:
                    self.scopes[-1][name] = unique

    def instruction(self, text: str, line: int) -> Instruction:
        match = re.match(rf"(?:@(!?)({NAME})\s+)?([a-z][\w.:]*)\s*(.*)$", text)
        if match is None:
            raise PtxError(f"line {line}: not an instruction: {text!r}")
        negated, guard, opcode, operands = match.groups()
        return Instruction(
            parts=tuple(opcode.split(".")),
            operands=tuple(self.operand(x, line) for x in split_operands(operands)),
            guard=Guard(self.register(guard, line), negated == "!") if guard else None,
            line=line,
            text=text,
            source=self.source,
        )

    def known(self, name: str) -> Register | None:
        for scope in reversed(self.scopes):
            name = scope.get(name, name)
        return Register(name, self.registers[name]) if name in self.registers else None

    def register(self, name: str, line: int) -> Register:
        if (register := self.known(name)) is None:
            raise PtxError(f"line {line}: register {name} is not declared")
        return register

    def operand(self, text: str, line: int) -> Operand:
        if text == "_":
            return None
        if text[0] == "{":
            items = [self.operand(x, line) for x in split_operands(text[1:-1])]
            return Vector(cast("tuple[Register | Immediate | Special | None, ...]", tuple(items)))
        if text[0] == "[":
            return self.address(text[1:-1].strip(), line)
        if text[0] == "!":
            return Negated(self.register(text[1:].strip(), line))
        if "|" in text:
            first, second = (self.operand(x.strip(), line) for x in text.split("|"))
            return Pair(cast("Register | None", first), cast("Register | None", second))
        if (number := immediate(text)) is not None:
            return number
        if (register := self.known(text)) is not None:
            return register
        if text[0] == "%":
            return Special(text)
        if (match := re.fullmatch(rf"({NAME})\s*(?:\+\s*(-?\w+))?", text)) is not None:
            return Symbol(match[1], int(match[2], 0) if match[2] else 0)
        raise PtxError(f"line {line}: operand {text!r}")

    def address(self, text: str, line: int) -> Address:
        match = re.fullmatch(rf"({NAME}|\d\w*)\s*(?:\+\s*(-?\w+))?", text)
        if match is None:
            raise PtxError(f"line {line}: address [{text}]")
        offset = int(match[2], 0) if match[2] else 0
        if match[1][0].isdigit():
            return Address(None, int(match[1], 0) + offset)
        return Address(self.known(match[1]) or Symbol(match[1]), offset)


def split_operands(text: str) -> list[str]:
    """At commas that are not inside braces or brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def immediate(text: str) -> Immediate | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16), 64)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", text):
        digits = text.rstrip("U")
        octal = re.fullmatch(r"-?0[0-7]+", digits)
        return Immediate(int(digits, 8 if octal else 0))
    return Immediate(32) if text == "WARP_SZ" else None
