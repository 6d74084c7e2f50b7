"""Select, compile and launch generated kernels."""

from .arrays.arguments import Argument
from .arrays.element import ElementKind
from .arrays.tensor import TensorRef, TensorView, view
from .arrays.workspace import Workspace
from .device import Device, Kernel, KernelSource, Resources
from .devices.named import default_device, get_device
from .errors import (
    BaracudaError,
    BufferTooSmall,
    CompileError,
    DriverError,
    InvalidProblem,
    KernelInternal,
    MisalignedOperand,
    OutOfMemory,
    SpecError,
    Unsupported,
    WorkspaceTooSmall,
)
from .families import *  # noqa: F403 # whatever each family has for generated modules
from .families import __all__ as _of_families
from .plans.declarations import Extent, Gradient
from .plans.descriptor import Convert, Descriptor, Requirement, field, same_as
from .plans.entry_points import entry_points
from .plans.plan import Array, Plan, Stream
from .plans.preference import PlanPreference
from .plans.prepared import BoundLaunch
from .plans.registry import REGISTRY, KernelRegistry, Registered, SourceFile
from .plans.schedule import Schedule
from .plans.selection import Explanation, Verdict
from .plans.sku import BackendKind, Direction, KernelSku, MathPrecision, PrecisionGuarantee, Tile
from .plans.tuned import Facts, Measurement, Tuned
from .values import as_bool, as_float, as_int, as_shape, as_text, table

__all__ = [
    "REGISTRY",
    "Argument",
    "Array",
    "BackendKind",
    "BaracudaError",
    "BoundLaunch",
    "BufferTooSmall",
    "CompileError",
    "Convert",
    "Descriptor",
    "Device",
    "Direction",
    "DriverError",
    "ElementKind",
    "Explanation",
    "Extent",
    "Facts",
    "Gradient",
    "InvalidProblem",
    "Kernel",
    "KernelInternal",
    "KernelRegistry",
    "KernelSku",
    "KernelSource",
    "MathPrecision",
    "Measurement",
    "MisalignedOperand",
    "OutOfMemory",
    "Plan",
    "PlanPreference",
    "PrecisionGuarantee",
    "Registered",
    "Requirement",
    "Resources",
    "Schedule",
    "SourceFile",
    "SpecError",
    "Stream",
    "TensorRef",
    "TensorView",
    "Tile",
    "Tuned",
    "Unsupported",
    "Verdict",
    "Workspace",
    "WorkspaceTooSmall",
    "as_bool",
    "as_float",
    "as_int",
    "as_shape",
    "as_text",
    "default_device",
    "entry_points",
    "field",
    "get_device",
    "same_as",
    "table",
    "view",
]
__all__ += _of_families
