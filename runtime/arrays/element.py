"""Scalar types: one row each; everything about a dtype is decided here."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import ml_dtypes
import numpy as np

from ..errors import Unsupported
from ..values import short_repr, text_of


class ElementKind(StrEnum):
    """A tensor's element type; compares equal to its tag, so ``"bf16"`` may stand for ``ElementKind.BF16``."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    C64 = "c64"
    C128 = "c128"

    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def _missing_(cls, value: object) -> ElementKind:
        raise Unsupported(f"unknown element {short_repr(value)}; known are {', '.join(k.value for k in cls)}")

    @classmethod
    def of(cls, value: object, name: str) -> ElementKind:
        """The element type of `value`; raises Unsupported, naming it `name`, for anything else."""
        if type(value) is cls:
            return value
        kind = _BY_TAG.get(text_of(value) or "")
        if kind is None:
            raise Unsupported(f"unknown {name} {short_repr(value)}; known are {', '.join(_BY_TAG)}")
        return kind

    @property
    def row(self) -> Element:
        return ELEMENTS[self]


_BY_TAG = {kind.value: kind for kind in ElementKind}


class Element(NamedTuple):
    """`acc` is the type sums of this type are kept in; `unit_roundoff` is half the
    distance from 1 to the next value. The last three are 0 for types that are not floating; of a complex type, all
    are of its parts.
    """

    kind: ElementKind
    numpy: np.dtype
    bytes: int
    cuda: str
    acc: ElementKind
    unit_roundoff: float = 0.0
    smallest_normal: float = 0.0
    largest: float = 0.0


_K = ElementKind
ELEMENTS: dict[ElementKind, Element] = {
    e.kind: e
    for e in (
        Element(_K.F16, np.dtype(np.float16), 2, "f16", _K.F32, 2.0**-11, 2.0**-14, 65504.0),
        Element(_K.BF16, np.dtype(ml_dtypes.bfloat16), 2, "bf16", _K.F32, 2.0**-8, 2.0**-126, 3.3895313892515355e38),
        Element(_K.F32, np.dtype(np.float32), 4, "float", _K.F32, 2.0**-24, 2.0**-126, 3.4028234663852886e38),
        Element(_K.F64, np.dtype(np.float64), 8, "double", _K.F64, 2.0**-53, 2.0**-1022, 1.7976931348623157e308),
        Element(_K.I8, np.dtype(np.int8), 1, "signed char", _K.I64),
        Element(_K.I16, np.dtype(np.int16), 2, "short", _K.I64),
        Element(_K.I32, np.dtype(np.int32), 4, "int", _K.I64),
        Element(_K.I64, np.dtype(np.int64), 8, "long long", _K.I64),
        Element(_K.U8, np.dtype(np.uint8), 1, "unsigned char", _K.I64),
        Element(_K.U16, np.dtype(np.uint16), 2, "unsigned short", _K.I64),
        Element(_K.U32, np.dtype(np.uint32), 4, "unsigned int", _K.I64),
        Element(_K.U64, np.dtype(np.uint64), 8, "unsigned long long", _K.I64),
        Element(_K.BOOL, np.dtype(np.bool_), 1, "bool", _K.I64),
        Element(_K.F8E4M3, np.dtype(ml_dtypes.float8_e4m3fn), 1, "f8e4m3", _K.F32, 2.0**-4, 2.0**-6, 448.0),
        Element(_K.F8E5M2, np.dtype(ml_dtypes.float8_e5m2), 1, "f8e5m2", _K.F32, 2.0**-3, 2.0**-14, 57344.0),
        Element(_K.C64, np.dtype(np.complex64), 8, "c64", _K.F32, 2.0**-24, 2.0**-126, 3.4028234663852886e38),
        Element(_K.C128, np.dtype(np.complex128), 16, "c128", _K.F64, 2.0**-53, 2.0**-1022, 1.7976931348623157e308),
    )
}
BY_NUMPY: dict[np.dtype, ElementKind] = {e.numpy: e.kind for e in ELEMENTS.values()}
