"""Select, compile and launch generated kernels."""

from .arrays.arguments import Argument
from .arrays.axes import is_suffix_mask, mask_axes, normalize_axis
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
from .families.body.plan import BodyPlan, body_kernels, bucket, ceil_div, round_up
from .families.body.selection import BodyKernel, Box, Serves
from .families.map.geometry import MapDescriptor
from .families.map.plan import MapPlan, map_kernels
from .families.row.geometry import RowDescriptor
from .families.row.plan import RowPlan, row_kernels
from .plans.declarations import Extent, Gradient
from .plans.descriptor import Convert, Descriptor, same_as
from .plans.plan import Array, Plan, Stream
from .plans.preference import PlanPreference
from .plans.prepared import BoundLaunch
from .plans.registry import REGISTRY, KernelRegistry, Registered, SourceFile
from .plans.schedule import Schedule
from .plans.selection import Explanation, Verdict
from .plans.sku import BackendKind, Direction, KernelSku, PrecisionGuarantee, Tile
from .plans.tuned import Facts, Measurement, Tuned
from .values import as_bool, as_float, as_int, as_shape

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
