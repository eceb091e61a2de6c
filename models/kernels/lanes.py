"""A number that is sixteen numbers: arithmetic on one value of sixteen instances at once.

Inside a numba function, `load(memory, index, (0,) * n)` reads a row of n features, each for the
`LANES` instances of a block, and `+ - * /` act on whole rows; a row of one feature, or a plain
number, meets every feature of a longer row. A row lives in vector registers, so a kernel reads
as its equation does for one instance and runs for sixteen without horizontal sums and without
depending on the compiler to find the vectors. NaN and infinity go through every operation.

numba takes long to import: import this module only where a kernel is about to run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

LANES = 16
"""Instances per block: 64 bytes of float32, one AVX-512 register or two of AVX2."""

# Only the fusion of a product and a sum is left to the compiler.
_FLAGS = ("contract",)


class Row(types.Type):
    """`size` features of `LANES` instances, of type `dtype`."""

    def __init__(self, dtype: Any, size: int) -> None:
        self.dtype, self.size = dtype, size
        super().__init__(name=f"Row({dtype}, {size})")


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, row: Row) -> None:
        super().__init__(manager, row, ir.ArrayType(_vector(row.dtype), row.size))


def _on_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """`numba.extending.intrinsic`, with a type."""
    return cast(Callable[..., Any], intrinsic(function))


def _vector(dtype: Any) -> ir.VectorType:
    return ir.VectorType(_element(dtype), LANES)


def _element(dtype: Any) -> ir.Type:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def _constant(dtype: Any, value: float) -> ir.Constant:
    return ir.Constant(_vector(dtype), [value] * LANES)


def _splat(builder: Any, number: Any) -> Any:
    """The same number in every lane."""
    empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, empty, zeros)


def _features(context: Any, builder: Any, given: Any, value: Any, row: Row) -> list[Any]:
    """The features of a row, or of a number, as the vectors that `row` has."""
    if not isinstance(given, Row):
        number = context.cast(builder, value, given, row.dtype)
        return [_splat(builder, number)] * row.size
    vectors = [builder.extract_value(value, i) for i in range(given.size)]
    return vectors * row.size if given.size == 1 else vectors


def _pack(builder: Any, vectors: list[Any]) -> Any:
    packed: Any = ir.Constant(ir.ArrayType(vectors[0].type, len(vectors)), ir.Undefined)
    for i, vector in enumerate(vectors):
        packed = builder.insert_value(packed, vector, i)
    return packed


def _common(x: Any, y: Any) -> Row | None:
    """The type of `x + y`, if at least one of them is a row and they go together."""
    rows = [each for each in (x, y) if isinstance(each, Row)]
    if not rows or not all(isinstance(each, (Row, types.Number)) for each in (x, y)):
        return None
    size = max(row.size for row in rows)
    if any(row.size not in (1, size) or row.dtype != rows[0].dtype for row in rows):
        return None
    return Row(rows[0].dtype, size)


def _operator(operation: Any, emit: Callable[..., Any]) -> None:
    """Give a Python operator its meaning for rows; `emit(builder, a, b)` computes one feature.

    Templates rather than `numba.extending.overload`, which compiles a function of its own for
    every pair of types: half of the time that the kernels take to compile.
    """
    class Template(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            row = _common(*arguments) if len(arguments) == 2 and not keywords else None
            return None if row is None else signature(row, *arguments)

    infer_global(operation)(Template)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right = (_features(context, builder, given, value, signature.return_type)
                       for given, value in zip(signature.args, arguments, strict=True))
        return _pack(builder, [emit(builder, a, b) for a, b in zip(left, right, strict=True)])

    for pair in ((Row, Row), (Row, types.Number), (types.Number, Row)):
        lower_builtin(operation, *pair)(generate)


def _unary(emit: Callable[..., Any]) -> Any:
    """Make a function of one row; `emit(builder, dtype, vector)` computes one feature."""
    @_on_rows
    def compute(typing: Any, x: Any) -> Any:
        if not isinstance(x, Row):
            return None

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = _features(context, builder, x, arguments[0], x)
            return _pack(builder, [emit(builder, x.dtype, vector) for vector in vectors])

        return x(x), generate

    return compute


_operator(operator.add, lambda builder, a, b: builder.fadd(a, b, flags=_FLAGS))
_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b, flags=_FLAGS))
_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b, flags=_FLAGS))
_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b, flags=_FLAGS))

def _call(builder: Any, name: str, vector: Any) -> Any:
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector.type, [vector.type]),
        f"{name}.{_suffix(vector.type.element)}")
    return builder.call(function, [vector])


def _suffix(element: Any) -> str:
    """How LLVM names a vector type in its intrinsic functions."""
    return f"v{LANES}f{32 if element == ir.FloatType() else 64}"


def _positive_part(builder: Any, dtype: Any, x: Any) -> Any:
    zero = _constant(dtype, 0.0)
    return builder.select(builder.fcmp_ordered("<", x, zero), zero, x)


def _is_positive(builder: Any, dtype: Any, x: Any) -> Any:
    zero = _constant(dtype, 0.0)
    return builder.select(builder.fcmp_ordered(">", x, zero), _constant(dtype, 1.0), zero)


def _exponential(builder: Any, dtype: Any, x: Any) -> Any:
    """2^n e^r with n = round(x / ln 2) and a polynomial in r; in float64 that of the libm.

    The coefficients are those of Cephes' expf (Moshier), right to 2 units in the last place.
    Below -87 the result would be denormal and is 0; above 88 it stays at e^88.
    """
    if dtype != types.float32:
        return _call(builder, "llvm.exp", x)

    def constant(value: float) -> ir.Constant:
        return _constant(dtype, value)

    def fused(a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)

    low, high = constant(-87.0), constant(88.0)
    vanishes = builder.fcmp_ordered("<", x, low)
    x = builder.select(vanishes, low, x)
    x = builder.select(builder.fcmp_ordered(">", x, high), high, x)
    # Adding 1.5 * 2^23 rounds to a whole number and leaves it in the lowest bits.
    shifted = fused(x, constant(1.4426950408889634), constant(12582912.0))
    whole = builder.fsub(shifted, constant(12582912.0))
    rest = fused(whole, constant(-0.693359375), x)
    rest = fused(whole, constant(2.12194440e-4), rest)
    series = constant(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                        5.0000001201e-1, 1.0, 1.0):
        series = fused(series, rest, constant(coefficient))
    integers = ir.VectorType(ir.IntType(32), LANES)
    exponent = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [23] * LANES))
    exponent = builder.add(exponent, ir.Constant(integers, [127 << 23] * LANES))
    result = builder.fmul(series, builder.bitcast(exponent, x.type))
    return builder.select(vanishes, constant(0.0), result)


positive_part = _unary(_positive_part)
"""max(x, 0)"""
is_positive = _unary(_is_positive)
"""1 where x > 0, and 0 elsewhere"""
exponential = _unary(_exponential)
"""e^x"""
square_root = _unary(lambda builder, dtype, x: _call(builder, "llvm.sqrt", x))
"""sqrt(x)"""


@_on_rows
def larger(typing: Any, x: Any, y: Any) -> Any:
    """max(x, y) of two rows of one size; y where one of them is NaN."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right = (_features(context, builder, x, value, x) for value in arguments)
        return _pack(builder, [builder.select(builder.fcmp_ordered(">", a, b), a, b)
                               for a, b in zip(left, right, strict=True)])

    return x(x, y), generate


@_on_rows
def dot(typing: Any, x: Any, y: Any) -> Any:
    """sum_i x_i y_i over the features of two rows: a row of one feature."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right = (_features(context, builder, x, value, x) for value in arguments)
        total = builder.fmul(left[0], right[0], flags=_FLAGS)
        for a, b in zip(left[1:], right[1:], strict=True):
            total = builder.fadd(builder.fmul(a, b, flags=_FLAGS), total, flags=_FLAGS)
        return _pack(builder, [total])

    return Row(x.dtype, 1)(x, y), generate


@_on_rows
def sum_of_lanes(typing: Any, x: Any) -> Any:
    """The sum over the instances of a row of one feature, in an order fixed by the compiler."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = builder.extract_value(arguments[0], 0)
        element = _element(x.dtype)
        name = f"llvm.vector.reduce.fadd.{_suffix(element)}"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(element, [element, vector.type]), name)
        start = ir.Constant(element, 0.0)
        return builder.call(function, [start, vector], fastmath=("reassoc",))

    return x.dtype(x), generate


def _address(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    """Pointer to the vector number `index` of an array."""
    data = cgutils.create_struct_proxy(array)(context, builder, value=value).data
    start = builder.mul(index, ir.Constant(index.type, LANES))
    return builder.bitcast(builder.gep(data, [start]), _vector(array.dtype).as_pointer())


@_on_rows
def load(typing: Any, memory: Any, index: Any, like: Any) -> Any:
    """The row of `len(like)` features at the vectors `index`, `index + 1`, ... of `memory`."""
    row = Row(memory.dtype, len(like))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.cast(builder, arguments[1], index, types.intp)
        pointer = _address(context, builder, memory, arguments[0], start)
        offsets = [ir.Constant(ir.IntType(64), i) for i in range(row.size)]
        return _pack(builder, [builder.load(builder.gep(pointer, [i]), align=_align(memory))
                               for i in offsets])

    return row(memory, index, like), generate


@_on_rows
def store(typing: Any, memory: Any, index: Any, value: Any) -> Any:
    """Write a row to the vectors `index`, `index + 1`, ... of `memory`."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.cast(builder, arguments[1], index, types.intp)
        pointer = _address(context, builder, memory, arguments[0], start)
        for i in range(value.size):
            place = builder.gep(pointer, [ir.Constant(ir.IntType(64), i)])
            builder.store(builder.extract_value(arguments[2], i), place, align=_align(memory))

    return types.void(memory, index, value), generate


def _align(memory: Any) -> int:
    return 4 if memory.dtype == types.float32 else 8


@_on_rows
def zeros(typing: Any, memory: Any, like: Any) -> Any:
    """A row of `len(like)` zeros of the type of `memory`."""
    row = Row(memory.dtype, len(like))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _pack(builder, [_constant(row.dtype, 0.0)] * row.size)

    return row(memory, like), generate


def _lane_addresses(
    context: Any, builder: Any, array: Any, value: Any, first: Any, step: Any, count: Any
) -> list[Any]:
    """Pointers to the numbers of all lanes; those from `count` on are lane 0's."""
    data = cgutils.create_struct_proxy(array)(context, builder, value=value).data
    whole = first.type
    pointers = []
    for lane in range(LANES):
        number = ir.Constant(whole, lane)
        offset = builder.select(builder.icmp_signed("<", number, count),
                                builder.mul(number, step), ir.Constant(whole, 0))
        pointers.append(builder.gep(data, [builder.add(first, offset)]))
    return pointers


@_on_rows
def collect(typing: Any, array: Any, first: Any, step: Any, count: Any) -> Any:
    """The numbers `first`, `first + step`, ... of an array, one per lane; 0 from `count` on."""
    row = Row(array.dtype, 1)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = [context.cast(builder, value, given, types.intp)
                 for given, value in zip(signature.args[1:], arguments[1:], strict=True)]
        pointers = _lane_addresses(context, builder, array, arguments[0], *whole)
        gathered: Any = _constant(row.dtype, 0.0)
        index = ir.IntType(32)
        for lane, pointer in enumerate(pointers):
            gathered = builder.insert_element(
                gathered, builder.load(pointer), ir.Constant(index, lane))
        lanes = ir.Constant(ir.VectorType(index, LANES), list(range(LANES)))
        present = builder.icmp_signed(
            "<", lanes, _splat(builder, builder.trunc(whole[2], index)))
        return _pack(builder, [builder.select(present, gathered, _constant(row.dtype, 0.0))])

    return row(array, first, step, count), generate


@_on_rows
def distribute(typing: Any, array: Any, first: Any, step: Any, count: Any, value: Any) -> Any:
    """Write the lanes below `count` to the numbers `first`, `first + step`, ... of an array."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = [context.cast(builder, argument, given, types.intp)
                 for given, argument in zip(signature.args[1:4], arguments[1:4], strict=True)]
        pointers = _lane_addresses(context, builder, array, arguments[0], *whole)
        vector = builder.extract_value(arguments[4], 0)
        # Lane 0 comes last and overwrites what absent lanes have left at its place.
        for lane in reversed(range(LANES)):
            number = builder.extract_element(vector, ir.Constant(ir.IntType(32), lane))
            builder.store(number, pointers[lane])

    return types.void(array, first, step, count, value), generate
