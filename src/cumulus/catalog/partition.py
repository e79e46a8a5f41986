"""The one hash that says in which bucket a value lives.

Every host uses it, in Python or over Arrow, so it is written down here once and never changed: checkpoints depend
on it.

======================================  ===========================================================================
value                                   its 64-bit hash
======================================  ===========================================================================
NULL                                    ``mix(0x4E554C4C)``
a whole number that fits 64 bits        ``mix(n)``, n in two's complement: 1, 1.0, 1.00 and TRUE agree
any other number, by its exact value    ``mix(2**32 + crc32(text))``, text being ``numerator/denominator``, reduced, in
                                        lower-case hexadecimal; or ``inf``, ``-inf``, ``nan``
VARCHAR                                 ``mix(crc32(UTF-8))``
DATE                                    ``mix`` of the days since 1970-01-01
TIMESTAMP, TIMESTAMPTZ                  ``mix`` of the microseconds since 1970-01-01 00:00:00 (UTC)
INTERVAL                                ``mix(mix(mix(months) + days) + microseconds)``
======================================  ===========================================================================

Several values in an order hash to ``mix(mix(hash of those before) + hash of the last)``.

``mix`` is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014), all modulo 2**64. The bucket is the hash modulo the number of buckets.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zlib import crc32

from cumulus.catalog.types import Interval

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_NULL = 0x4E554C4C
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def bucket_of(value: Any, buckets: int) -> int:
    """Return the bucket, from 0 to ``buckets - 1``, of a value of any SQL type, None for NULL.

    Examples
    --------
    >>> from decimal import Decimal
    >>> [bucket_of(value, 8) for value in (1, 1.0, Decimal("1.00"), 2, "one", None)]
    [1, 1, 1, 6, 1, 3]
    """
    assert buckets > 0, "there is at least one bucket"
    return hash_of(value) % buckets


def bucket_of_row(values: Sequence[Any], buckets: int) -> int:
    """Return the bucket of one or more values together; that of one value is `bucket_of` it.

    Examples
    --------
    >>> [bucket_of_row(row, 64) for row in ((1,), (1, "two"), ("two", 1))]
    [1, 33, 9]
    """
    assert buckets > 0, "there is at least one bucket"
    found = hash_of(values[0])
    for value in values[1:]:
        found = _mix(_mix(found) + hash_of(value))
    return found % buckets


def buckets_of(values: pa.Array | pa.ChunkedArray, buckets: int, *more: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the buckets of all `values`, as 32-bit integers without NULLs: `bucket_of`, column-wise.

    The type of the values is `cumulus.catalog.types.arrow_type` of a SQL type, or wider; NULLs are values. With `more`
    columns it is `bucket_of_row`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> buckets_of(pa.array([1, 2, None]), 8).to_pylist()
    [1, 6, 3]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    assert buckets > 0, "there is at least one bucket"
    hashes = _hashes(_joined(values))
    for column in more:
        hashes = _mixed(pc.add(_mixed(hashes), _hashes(_joined(column))))
    size = pa.scalar(buckets, pa.uint64())
    rest = pc.subtract(hashes, pc.multiply(pc.divide(hashes, size), size))
    return rest.cast(pa.int32())


def buckets_of_words(
    numbers: npt.NDArray[np.int64], buckets: int, nulls: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.int64]:
    """Return the buckets of whole numbers of 64 bits, and of NULL where `nulls` says so: `bucket_of`, column-wise.

    For few numbers this takes a tenth of what `buckets_of` takes.

    Examples
    --------
    >>> import numpy as np
    >>> buckets_of_words(np.array([1, 2, 7]), 8, np.array([False, False, True])).tolist()
    [1, 6, 3]
    """
    import numpy as np

    assert buckets > 0, "there is at least one bucket"
    state = numbers.view(np.uint64) + np.uint64(_GOLDEN)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    if nulls is not None:
        state[nulls] = hash_of(None)
    return (state % np.uint64(buckets)).astype(np.int64)


def hash_of(value: Any) -> int:
    """Return the 64-bit hash of `value`, unsigned; see the table above."""
    match value:
        case None:
            return _mix(_NULL)
        case str():
            return _mix(crc32(value.encode("utf-8", "surrogatepass")))
        case int():
            return _mix(value) if -(1 << 63) <= value < 1 << 63 else _mix_ratio(value, 1)
        case float() | Decimal():
            return _hash_of_fraction(value)
        case dt.datetime():
            return _mix((value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)
        case dt.date():
            return _mix(value.toordinal() - _EPOCH_DAY)
        case Interval(months, days, micros):
            return _mix(_mix(_mix(months) + days) + micros)
        case _:
            raise AssertionError(f"{value!r} is not a value of any SQL type")


def _mix(value: int) -> int:
    """Return SplitMix64's next output after the state `value` (taken modulo 2**64)."""
    mixed = (value + _GOLDEN) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 31)


def _hash_of_fraction(value: float | Decimal) -> int:
    if not math.isfinite(value):
        name = "nan" if value != value else ("inf" if value > 0 else "-inf")
        return _mix(crc32(name.encode()) + (1 << 32))
    numerator, denominator = value.as_integer_ratio()
    if denominator == 1 and -(1 << 63) <= numerator < 1 << 63:
        return _mix(numerator)
    return _mix_ratio(numerator, denominator)


def _mix_ratio(numerator: int, denominator: int) -> int:
    return _mix(crc32(f"{numerator:x}/{denominator:x}".encode()) + (1 << 32))


def _hashes(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    from cumulus.catalog.arrow import plain_list

    kind = values.type
    if pa.types.is_dictionary(kind):
        return _taken(_hashes(values.dictionary), values.indices)
    if pa.types.is_date32(kind):
        return _mixed(values.cast(pa.int32()).cast(pa.int64()))
    if pa.types.is_date64(kind):
        return _hashes(values.cast(pa.date32()))
    if pa.types.is_timestamp(kind):
        return _mixed(values.cast(pa.timestamp("us")).cast(pa.int64()))
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        return _mixed(values.cast(pa.int64()))
    if pa.types.is_interval(kind) or pa.types.is_null(kind):
        return pa.array([hash_of(value) for value in plain_list(values)], pa.uint64())
    # Anything else is hashed in Python, each different value once.
    encoded = values.dictionary_encode()
    different = pa.array([hash_of(value) for value in encoded.dictionary.to_pylist()], pa.uint64())
    return _taken(different, encoded.indices)


def _joined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values as one array."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # what combine_chunks of no chunks gives
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values


def _taken(different: pa.Array, indices: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.fill_null(different.take(indices), hash_of(None))


def _mixed(numbers: pa.Array) -> pa.Array:
    """`_mix` of 64-bit integers; Arrow's plain arithmetic wraps around as the definition wants."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def constant(value: int) -> pa.Scalar:
        return pa.scalar(value, pa.uint64())

    def xor_shifted(mixed: pa.Array, by: int) -> pa.Array:
        return pc.bit_wise_xor(mixed, pc.shift_right(mixed, constant(by)))

    state = pc.add(numbers.cast(pa.uint64(), safe=False), constant(_GOLDEN))
    state = pc.multiply(xor_shifted(state, 30), constant(_FIRST))
    state = pc.multiply(xor_shifted(state, 27), constant(_SECOND))
    return pc.fill_null(xor_shifted(state, 31), constant(hash_of(None)))
