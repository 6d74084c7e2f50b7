"""Select, compile and launch generated kernels."""

from .arguments import Argument
from .axes import is_suffix_mask, mask_axes, normalize_axis
from .descriptor import Convert, Descriptor, as_bool, as_float, as_int, as_shape
from .device import Device, Kernel, KernelSource, Resources
from .devices import default_device, get_device
from .element import ElementKind
from .errors import (
    BaracudaError,
    BufferTooSmall,
    CompileError,
    DriverError,
    InvalidProblem,
    KernelInternal,
    MisalignedOperand,
    SpecError,
    Unsupported,
    WorkspaceTooSmall,
)
from .plan import Array, BoundLaunch, Explanation, Plan, Stream, Verdict
from .preference import PlanPreference
from .registry import REGISTRY, KernelRegistry, Registered, SourceFile
from .row import RowPlan, row_kernels
from .row_geometry import RowDescriptor
from .sku import BackendKind, Direction, KernelSku, PrecisionGuarantee, Tile
from .tensor import TensorRef, TensorView, view
from .workspace import Workspace

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
    "InvalidProblem",
    "Kernel",
    "KernelInternal",
    "KernelRegistry",
    "KernelSku",
    "KernelSource",
    "MisalignedOperand",
    "Plan",
    "PlanPreference",
    "PrecisionGuarantee",
    "Registered",
    "Resources",
    "RowDescriptor",
    "RowPlan",
    "SourceFile",
    "SpecError",
    "Stream",
    "TensorRef",
    "TensorView",
    "Tile",
    "Unsupported",
    "Verdict",
    "Workspace",
    "WorkspaceTooSmall",
    "as_bool",
    "as_float",
    "as_int",
    "as_shape",
    "default_device",
    "get_device",
    "is_suffix_mask",
    "mask_axes",
    "normalize_axis",
    "row_kernels",
    "view",
]
