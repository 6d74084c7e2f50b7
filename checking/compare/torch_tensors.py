"""Types of torch's versions of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fields = Mapping[str, Any]
Tensors = Mapping[str, Any]
Values = Callable[[Any, Fields, Tensors], dict[str, Any]]
