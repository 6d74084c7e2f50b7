"""Select, compile and launch generated kernels."""

from .arguments import Argument
from .axes import is_suffix_mask, mask_axes, normalize_axis
from .body import BodyPlan, body_kernels, bucket, ceil_div, round_up
from .body_selection import BodyKernel, Box, Serves
from .descriptor import Convert, Descriptor, same_as
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
    OutOfMemory,
    SpecError,
    Unsupported,
    WorkspaceTooSmall,
)
from .map import MapPlan, map_kernels
from .map_geometry import MapDescriptor
from .plan import Array, Plan, Stream
from .preference import PlanPreference
from .prepared import BoundLaunch
from .registry import REGISTRY, KernelRegistry, Registered, SourceFile
from .relations import Extent, Gradient
from .row import RowPlan, row_kernels
from .row_geometry import RowDescriptor
from .schedule import Schedule
from .selection import Explanation, Verdict
from .sku import BackendKind, Direction, KernelSku, PrecisionGuarantee, Tile
from .tensor import TensorRef, TensorView, view
from .tuned import Facts, Measurement, Tuned
from .values import as_bool, as_float, as_int, as_shape
from .workspace import Workspace

__all__ = [
    "REGISTRY",
    "Argument",
    "Array",
    "BackendKind",
    "BaracudaError",
    "BodyKernel",
    "BodyPlan",
    "BoundLaunch",
    "Box",
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
    "MapDescriptor",
    "MapPlan",
    "Measurement",
    "MisalignedOperand",
    "OutOfMemory",
    "Plan",
    "PlanPreference",
    "PrecisionGuarantee",
    "Registered",
    "Resources",
    "RowDescriptor",
    "RowPlan",
    "Schedule",
    "Serves",
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
    "body_kernels",
    "bucket",
    "ceil_div",
    "default_device",
    "get_device",
    "is_suffix_mask",
    "map_kernels",
    "mask_axes",
    "normalize_axis",
    "round_up",
    "row_kernels",
    "same_as",
    "view",
]
