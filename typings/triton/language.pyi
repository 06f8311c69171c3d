"""The language of kernels: what it computes with has no type that Python knows."""

from typing import Any, TypeAlias

constexpr: TypeAlias = Any

def __getattr__(name: str) -> Any: ...
