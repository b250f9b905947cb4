"""Vectors of 16 float32 lanes (avx512) as Numba values.

A vector lives in one register, like a float in a local variable: its Numba type is modelled by an
LLVM vector type, and each operation below is one intrinsic that becomes one or a few instructions.
Memory is addressed as (one-dimensional C-contiguous array, element index), without bounds checks.
No operation uses fast-math: NaN and infinities behave as IEEE 754 says.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16
ELEMENT = np.float32

_ELEMENT_IR = ir.FloatType()
_FLOATS = ir.VectorType(_ELEMENT_IR, LANES)
_INTEGERS = ir.VectorType(ir.IntType(64), LANES)
_TRUTHS = ir.VectorType(ir.IntType(1), LANES)
_BITS = ir.VectorType(ir.IntType(32), LANES)
_SUFFIX = "v16f32"


class Vector(types.Type):
    """The Numba type of a vector register, by what its lanes hold."""

    def __init__(self, kind, llvm):
        self.llvm = llvm
        super().__init__(name=f"vector({kind} x {LANES})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is one LLVM value in memory and in registers alike."""

    def __init__(self, manager, frontend_type):
        super().__init__(manager, frontend_type, frontend_type.llvm)


floats = Vector("float32", _FLOATS)
integers = Vector("int64", _INTEGERS)
truths = Vector("bool", _TRUTHS)
_SCALAR = types.float32


def _splat(builder, scalar, vector):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def _all(value, vector=_FLOATS):
    return ir.Constant(vector, [value] * LANES)


def _llvm(builder, name, result, *args):
    function_type = ir.FunctionType(result, [a.type for a in args])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, args)


def _fma(builder, a, b, c):
    return _llvm(builder, f"llvm.fma.{_SUFFIX}", _FLOATS, a, b, c)


def _unary(builder, name, x):
    return _llvm(builder, f"llvm.{name}.{_SUFFIX}", _FLOATS, x)


def _horner(builder, coefficients, x):
    total = _all(coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fma(builder, total, x, _all(coefficient))
    return total


def _address(context, builder, array_type, array, index, vector):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


# --- memory ---------------------------------------------------------------------------------------


@intrinsic
def v_load(typing, array, index):
    """LANES consecutive elements of `array` from `index`; an int64 array gives integers."""
    result = integers if array.dtype == types.int64 else floats

    def code(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], *args, result.llvm)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return result(array, types.intp), code


@intrinsic
def v_store(typing, array, index, value):
    """Write the lanes of `value` to `array` from `index` on."""

    def code(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], args[1], _FLOATS)
        builder.store(args[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, floats), code


@intrinsic
def v_splat_load(array_typing, array, index):
    """One element of `array` in every lane; a broadcast operand where the machine has one."""

    def code(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], *args, _ELEMENT_IR)
        return _splat(builder, builder.load(pointer), _FLOATS)

    return floats(array, types.intp), code


@intrinsic
def v_gather(typing, array, index):
    """The elements of `array` at the lanes of `index`: floats, integers or truths, as it holds."""
    result = {types.int64: integers, types.boolean: truths}.get(array.dtype, floats)

    def code(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        gathered = ir.Constant(result.llvm, ir.Undefined)
        for i in range(LANES):
            lane = ir.IntType(32)(i)
            element = builder.load(builder.gep(data, [builder.extract_element(args[1], lane)]))
            if result == truths:
                element = builder.trunc(element, ir.IntType(1))
            gathered = builder.insert_element(gathered, element, lane)
        return gathered

    return result(array, integers), code


@intrinsic
def v_transpose(typing, source, start, stride, target, target_start, target_stride):
    """Write the transpose of the LANES × LANES block of `source` (rows `stride` apart)."""

    def code(context, builder, signature, args):
        source, start, stride, target, target_start, target_stride = args

        def at(array_type, array, base, step, row):
            index = builder.add(base, builder.mul(step, ir.IntType(64)(row)))
            return _address(context, builder, array_type, array, index, _FLOATS)

        rows = [
            builder.load(at(signature.args[0], source, start, stride, i), align=4)
            for i in range(LANES)
        ]
        # Swap the off-diagonal quarters of ever smaller sub-blocks (Eklundh, 1972).
        half = LANES // 2
        while half:
            low = [(p - half) % LANES + LANES if p & half else p for p in range(LANES)]
            high = [p + LANES if p & half else p + half for p in range(LANES)]
            picks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), p) for p in (low, high)]
            for i in range(LANES):
                if not i & half:
                    a, b = rows[i], rows[i + half]
                    rows[i] = builder.shuffle_vector(a, b, picks[0])
                    rows[i + half] = builder.shuffle_vector(a, b, picks[1])
            half //= 2
        for i, row in enumerate(rows):
            pointer = at(signature.args[3], target, target_start, target_stride, i)
            builder.store(row, pointer, align=4)
        return context.get_dummy_value()

    ints = types.intp
    return types.void(source, ints, ints, target, ints, ints), code


def _element_address(context, builder, matrix_type, matrix, row, column):
    """Where matrix[row, column] is, and how many bytes the next column is away."""
    struct = context.make_array(matrix_type)(context, builder, matrix)
    row_stride, column_stride = cgutils.unpack_tuple(builder, struct.strides, 2)
    offset = builder.add(builder.mul(row, row_stride), builder.mul(column, column_stride))
    first_byte = builder.bitcast(struct.data, ir.IntType(8).as_pointer())
    return builder.gep(first_byte, [offset]), column_stride


def _is_plain(builder, stride, count):
    dense = builder.icmp_signed("==", stride, ir.IntType(64)(4))
    return builder.and_(dense, builder.icmp_signed(">=", count, ir.IntType(64)(LANES)))


def _lane_addresses(builder, address, stride, count):
    """An address for each lane, and which lanes are below `count`."""
    lane = ir.Constant(_INTEGERS, list(range(LANES)))
    steps = builder.mul(lane, _splat(builder, stride, _INTEGERS))
    start = _splat(builder, builder.ptrtoint(address, ir.IntType(64)), _INTEGERS)
    pointers = ir.VectorType(_ELEMENT_IR.as_pointer(), LANES)
    present = builder.icmp_signed("<", lane, _splat(builder, count, _INTEGERS))
    return builder.inttoptr(builder.add(start, steps), pointers), present


@intrinsic
def v_load_row(typing, matrix, row, column, count):
    """`count` elements of a matrix row of any strides from `column` on; LANES at most, then 0."""

    def code(context, builder, signature, args):
        address, stride = _element_address(context, builder, signature.args[0], *args[:3])
        with builder.if_else(_is_plain(builder, stride, args[3])) as (plain, other):
            with plain:
                whole = builder.load(builder.bitcast(address, _FLOATS.as_pointer()), align=4)
                plain_block = builder.block
            with other:
                pointers, present = _lane_addresses(builder, address, stride, args[3])
                name = f"llvm.masked.gather.{_SUFFIX}.v{LANES}p0"
                align = ir.IntType(32)(4)
                part = _llvm(builder, name, _FLOATS, pointers, align, present, _all(0.0))
                other_block = builder.block
        result = builder.phi(_FLOATS)
        result.add_incoming(whole, plain_block)
        result.add_incoming(part, other_block)
        return result

    return floats(matrix, types.intp, types.intp, types.intp), code


@intrinsic
def v_store_row(typing, matrix, row, column, count, value):
    """Write the first `count` lanes (all, if there are fewer) to a matrix row of any strides."""

    def code(context, builder, signature, args):
        address, stride = _element_address(context, builder, signature.args[0], *args[:3])
        with builder.if_else(_is_plain(builder, stride, args[3])) as (plain, other):
            with plain:
                target = builder.bitcast(address, _FLOATS.as_pointer())
                builder.store(args[4], target, align=4)
            with other:
                pointers, present = _lane_addresses(builder, address, stride, args[3])
                name = f"llvm.masked.scatter.{_SUFFIX}.v{LANES}p0"
                align = ir.IntType(32)(4)
                _llvm(builder, name, ir.VoidType(), args[4], pointers, align, present)
        return context.get_dummy_value()

    return types.void(matrix, types.intp, types.intp, types.intp, floats), code


@intrinsic
def prefetch(typing, array, index):
    """Ask for the cache line of `array[index]` in L2; never faults, even past the end."""

    def code(context, builder, signature, args):
        byte = ir.IntType(8)
        pointer = _address(context, builder, signature.args[0], *args, byte)
        arguments = [ir.IntType(32)(value) for value in (0, 2, 1)]  # read, into L2, data
        _llvm(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, *arguments)
        return context.get_dummy_value()

    return types.void(array, types.intp), code


@intrinsic
def fetch_add(typing, counters, index, amount):
    """Add to an int64 counter that threads share; the value before is the result."""

    def code(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.gep(data, [args[1]])
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(counters, types.intp, types.int64), code


# --- arithmetic -----------------------------------------------------------------------------------


@intrinsic
def v_zero(typing):
    """Zero in every lane."""
    return floats(), lambda context, builder, signature, args: _all(0.0)


@intrinsic
def v_splat(typing, scalar):
    """`scalar` in every lane: an integer gives integers, a truth value truths."""
    if isinstance(scalar, types.Boolean):
        result, as_type = truths, types.boolean
    elif isinstance(scalar, types.Integer):
        result, as_type = integers, types.int64
    else:
        result, as_type = floats, _SCALAR

    def code(context, builder, signature, args):
        value = args[0]
        if as_type == types.boolean:
            value = builder.trunc(value, ir.IntType(1)) if value.type.width > 1 else value
        return _splat(builder, value, result.llvm)

    return result(as_type), code


@intrinsic
def v_iota(typing, start):
    """start, start + 1, … as integers."""

    def code(context, builder, signature, args):
        steps = ir.Constant(_INTEGERS, list(range(LANES)))
        return builder.add(_splat(builder, args[0], _INTEGERS), steps)

    return integers(types.int64), code


@intrinsic
def v_fma(typing, a, b, c):
    """a·b + c, rounded once."""

    def code(context, builder, signature, args):
        return _fma(builder, *args)

    return floats(floats, floats, floats), code


def _arithmetic(name, float_op, integer_op):
    def template(typing, a, b):
        def code(context, builder, signature, args):
            return (integer_op if a == integers else float_op)(builder, *args)

        return a(a, a), code

    template.__name__ = name
    return intrinsic(template)


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder, a, b):
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _integer_pick(comparison):
    return lambda builder, a, b: builder.select(builder.icmp_signed(comparison, a, b), a, b)


def _floor_quotient(builder, a, b):
    quotient = builder.sdiv(a, b)  # rounds towards 0
    rest = builder.sub(a, builder.mul(quotient, b))
    zero = _all(0, _INTEGERS)
    uneven = builder.icmp_signed("!=", rest, zero)
    signs_differ = builder.icmp_signed("<", builder.xor(rest, b), zero)
    below = builder.and_(uneven, signs_differ)
    return builder.select(below, builder.sub(quotient, _all(1, _INTEGERS)), quotient)


def _floor_ratio(builder, a, b):
    return _unary(builder, "floor", builder.fdiv(a, b))


def _integer_mod(builder, a, b):
    return builder.sub(a, builder.mul(_floor_quotient(builder, a, b), b))


def _float_mod(builder, a, b):
    return builder.fsub(a, builder.fmul(_floor_ratio(builder, a, b), b))


v_add = _arithmetic("v_add", lambda g, a, b: g.fadd(a, b), lambda g, a, b: g.add(a, b))
v_sub = _arithmetic("v_sub", lambda g, a, b: g.fsub(a, b), lambda g, a, b: g.sub(a, b))
v_mul = _arithmetic("v_mul", lambda g, a, b: g.fmul(a, b), lambda g, a, b: g.mul(a, b))
v_div = _arithmetic("v_div", lambda g, a, b: g.fdiv(a, b), lambda g, a, b: g.sdiv(a, b))
v_floordiv = _arithmetic("v_floordiv", _floor_ratio, _floor_quotient)
v_mod = _arithmetic("v_mod", _float_mod, _integer_mod)
v_max = _arithmetic("v_max", _larger, _integer_pick(">"))  # the second operand if one is NaN
v_min = _arithmetic("v_min", _smaller, _integer_pick("<"))


@intrinsic
def v_abs(typing, a):
    """|a|."""

    def code(context, builder, signature, args):
        x = args[0]
        if a == integers:
            negative = builder.icmp_signed("<", x, _all(0, _INTEGERS))
            return builder.select(negative, builder.neg(x), x)
        return _unary(builder, "fabs", x)

    return a(a), code


@intrinsic
def v_to_float(typing, a):
    """Integers or truths as floats."""

    def code(context, builder, signature, args):
        convert = builder.sitofp if a == integers else builder.uitofp
        return convert(args[0], _FLOATS)

    return floats(a), code


@intrinsic
def v_to_int(typing, a):
    """Floats, rounded towards 0, or truths as integers; within ±2^62, and 0 for NaN."""

    def code(context, builder, signature, args):
        x = args[0]
        if a != floats:
            return builder.zext(x, _INTEGERS)
        inside = _smaller(builder, _larger(builder, x, _all(-(2.0**62))), _all(2.0**62))
        number = builder.fcmp_ordered("==", x, x)
        return builder.fptosi(builder.select(number, inside, _all(0.0)), _INTEGERS)

    return integers(a), code


def _comparison(name, symbol):
    def template(typing, a, b):
        def code(context, builder, signature, args):
            if a == integers:
                return builder.icmp_signed(symbol, *args)
            compare = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
            return compare(symbol, *args)

        return truths(a, a), code

    template.__name__ = name
    return intrinsic(template)


v_lt = _comparison("v_lt", "<")
v_le = _comparison("v_le", "<=")
v_gt = _comparison("v_gt", ">")
v_ge = _comparison("v_ge", ">=")
v_eq = _comparison("v_eq", "==")
v_ne = _comparison("v_ne", "!=")


@intrinsic
def v_and(typing, a, b):
    """Both, lane by lane."""
    return truths(truths, truths), lambda c, builder, s, args: builder.and_(*args)


@intrinsic
def v_or(typing, a, b):
    """Either, lane by lane."""
    return truths(truths, truths), lambda c, builder, s, args: builder.or_(*args)


@intrinsic
def v_not(typing, a):
    """The opposite, lane by lane."""
    return truths(truths), lambda c, builder, s, args: builder.not_(args[0])


@intrinsic
def v_select(typing, condition, a, b):
    """`a` where `condition` holds, else `b`."""
    return a(truths, a, a), lambda c, builder, s, args: builder.select(*args)


@intrinsic
def v_sum(typing, a):
    """The sum of all lanes, added as a tree whose shape depends on LANES alone."""

    def code(context, builder, signature, args):
        total, width = args[0], LANES
        while width > 1:
            width //= 2
            picks = ir.VectorType(ir.IntType(32), width)
            low = builder.shuffle_vector(total, total, ir.Constant(picks, list(range(width))))
            high = ir.Constant(picks, list(range(width, 2 * width)))
            total = builder.fadd(low, builder.shuffle_vector(total, total, high))
        return builder.extract_element(total, ir.IntType(32)(0))

    return _SCALAR(floats), code


# --- functions ------------------------------------------------------------------------------------

# Polynomials, highest power first: 2^f = 1 + f·P(f) and tanh x = x + x³·P(x²).
_EXP2 = (
    0.00015594677893006258,
    0.0013406643871014447,
    0.009617692973559735,
    0.05550310551105354,
    0.24022652782884113,
    0.693147214967971,
)
_TANH = (
    -0.005704988145496291,
    0.0206390884322012,
    -0.05373971549929623,
    0.1333144220357397,
    -0.333332819421992,
)


def _power(builder, f, n):
    # 2^f · 2^n for |f| ≤ 1/2 and a whole n that keeps the result a normal number: n is added to the
    # exponent bits of 2^f.
    power = _fma(builder, _horner(builder, _EXP2, f), f, _all(1.0))
    exponent = builder.shl(builder.fptosi(n, _BITS), _all(23, _BITS))
    return builder.bitcast(builder.add(builder.bitcast(power, _BITS), exponent), _FLOATS)


def _weight(builder, x):
    n = _unary(builder, "rint", x)
    power = _power(builder, builder.fsub(x, n), n)
    # Below the normal numbers (and for -inf) the result is exactly 0; NaN compares false and stays.
    tiny = builder.fcmp_ordered("<", x, _all(-126.0))
    return builder.select(tiny, _all(0.0), power)


def _any_power(builder, f, n):
    # As `_power`, for every whole n: the largest results are made as 2 · 2^(n - 1).
    above = builder.fcmp_ordered(">", n, _all(0.0))
    n = builder.select(above, builder.fsub(n, _all(1.0)), n)
    power = builder.fmul(_power(builder, f, n), builder.select(above, _all(2.0), _all(1.0)))
    tiny = builder.fcmp_ordered("<", n, _all(-126.0))
    large = builder.fcmp_ordered(">", n, _all(127.0))
    power = builder.select(tiny, _all(0.0), power)
    return builder.select(large, _all(float("inf")), power)


def _exp2(builder, x):
    n = _unary(builder, "rint", x)
    return _any_power(builder, builder.fsub(x, n), n)


def _exp(builder, x):
    # e^x = 2^n · e^r with r = x - n·ln 2, where ln 2 is taken in two parts to keep r exact.
    n = _unary(builder, "rint", builder.fmul(x, _all(1.4426950408889634)))
    r = _fma(builder, n, _all(-0.693359375), x)
    r = _fma(builder, n, _all(0.00021219444005471377), r)
    return _any_power(builder, builder.fmul(r, _all(1.4426950408889634)), n)


def _tanh(builder, x):
    size = _unary(builder, "fabs", x)
    square = builder.fmul(x, x)
    near = _fma(builder, builder.fmul(square, x), _horner(builder, _TANH, square), x)
    one = _all(10.0)  # from here on tanh is 1 in this type
    capped = builder.select(builder.fcmp_ordered(">", size, one), one, size)
    power = _weight(builder, builder.fmul(capped, _all(2.8853900817779268)))
    far = builder.fsub(_all(1.0), builder.fdiv(_all(2.0), builder.fadd(power, _all(1.0))))
    far = _llvm(builder, f"llvm.copysign.{_SUFFIX}", _FLOATS, far, x)
    return builder.select(builder.fcmp_ordered("<", size, _all(0.625)), near, far)


def _sigmoid(builder, x):
    power = _exp(builder, builder.fneg(x))
    return builder.fdiv(_all(1.0), builder.fadd(power, _all(1.0)))


def _function(name, summary, code):
    def template(typing, a):
        return floats(floats), lambda context, builder, signature, args: code(builder, args[0])

    template.__name__ = name
    template.__doc__ = summary
    return intrinsic(template)


def _named(name):
    return lambda builder, x: _unary(builder, name, x)


v_weight = _function("v_weight", "2^a for a ≤ 0; exactly 0 where that is not normal.", _weight)
v_exp2 = _function("v_exp2", "2^a.", _exp2)
v_exp = _function("v_exp", "e^a.", _exp)
v_log2 = _function("v_log2", "The logarithm to base 2.", _named("log2"))
v_log = _function("v_log", "The natural logarithm.", _named("log"))
v_sqrt = _function("v_sqrt", "The square root.", _named("sqrt"))
v_floor = _function("v_floor", "The largest whole number that is not above a.", _named("floor"))
v_tanh = _function("v_tanh", "A polynomial near 0, else 1 - 2 / (exp(2|a|) + 1).", _tanh)
v_sigmoid = _function("v_sigmoid", "1 / (1 + e^-a).", _sigmoid)
