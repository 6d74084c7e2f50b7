"""What each family's plans add: arguments, launch geometry, selection. Generated modules use what is listed here."""

from .body.plan import BodyPlan, body_kernels
from .body.selection import BodyKernel, BodySchedule, Box, Scratch
from .list.plan import ListPlan
from .map.geometry import MapDescriptor
from .map.map_pass import MapPass
from .map.plan import MapPlan, map_kernels
from .matmul.matmul_pass import MadePass, MatmulPass
from .matmul.plan import MatmulPlan
from .matmul.selection import matmul_kernels
from .row.geometry import RowDescriptor
from .row.plan import RowPlan, row_kernels

__all__ = [
    "BodyKernel",
    "BodyPlan",
    "BodySchedule",
    "Box",
    "ListPlan",
    "MadePass",
    "MapDescriptor",
    "MapPass",
    "MapPlan",
    "MatmulPass",
    "MatmulPlan",
    "RowDescriptor",
    "RowPlan",
    "Scratch",
    "body_kernels",
    "map_kernels",
    "matmul_kernels",
    "row_kernels",
]
