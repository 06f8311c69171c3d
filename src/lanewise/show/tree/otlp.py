"""A tree as OTLP profiles (the signal is in development): the bytes of one `ExportProfilesServiceRequest`.

What a receiver takes at `/v1development/profiles`, with `Content-Type: application/x-protobuf`. One profile per metric, one
sample per context with a cost, the phase as an attribute.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from lanewise._version import __version__
from lanewise.errors import MissingDependencyError, UsageError
from lanewise.show.safe_text import clean
from lanewise.show.tree.pprof import SAMPLE_TYPES, Source, source_of
from lanewise.tree.model import PHASES, NodeKind, Tree

__all__ = ["otlp"]


def otlp(tree: Tree, *, at_ns: int | None = None) -> bytes:
    """The request.

    Args:
        tree: costs, and no changes of costs.
        at_ns: when the profile was taken, ns since 1970; now by default.

    Raises:
        MissingDependencyError: OpenTelemetry's messages are not installed, or are of a version without profiles.
        UsageError: a tree of differences.
    """
    messages = _messages()
    values = {metric: tree.value(metric) for metric, _ in SAMPLE_TYPES}
    if any(column.min(initial=0) < 0 for column in values.values()):
        raise UsageError("this tree is a difference: profiles hold costs, not changes of costs")
    tables = _Tables(messages)
    stacks = _stacks(tree, tables)
    phases = [tables.attribute("lanewise.phase", phase) for phase in PHASES]
    request: Any = messages.request()
    resource = request.resource_profiles.add()
    name = resource.resource.attributes.add()
    name.key, name.value.string_value = "service.name", clean(tree.info.source, 200) or "program"
    scope = resource.scope_profiles.add()
    scope.scope.name, scope.scope.version = "lanewise", __version__
    watched = tree.info.watched
    now = time.time_ns() if at_ns is None else at_ns
    for metric, unit in SAMPLE_TYPES:
        nodes = np.flatnonzero(values[metric])
        if not len(nodes):
            continue
        profile = scope.profiles.add()
        profile.sample_type.type_strindex = tables.string(metric)
        profile.sample_type.unit_strindex = tables.string(unit)
        profile.time_unix_nano = now
        profile.duration_nano = round(watched.seconds * 1e9) if watched is not None else 0
        profile.profile_id = hashlib.sha256(f"{now} {metric} {tree.info.source}".encode()).digest()[:16]
        for node in nodes.tolist():
            sample = profile.samples.add()
            sample.stack_index = stacks(node)
            sample.attribute_indices.append(phases[int(tree.phase[node])])
            sample.values.append(int(values[metric][node]))
    request.dictionary.CopyFrom(tables.dictionary)
    return request.SerializeToString(deterministic=True)


class _Messages(NamedTuple):
    request: Any
    profiles: Any


def _messages() -> _Messages:
    try:
        from opentelemetry.proto.collector.profiles.v1development import (  # type: ignore[import-not-found]
            profiles_service_pb2,
        )
        from opentelemetry.proto.profiles.v1development import profiles_pb2  # type: ignore[import-not-found]

        profiles: Any = profiles_pb2
        if "stack_table" not in profiles.ProfilesDictionary.DESCRIPTOR.fields_by_name:
            raise ImportError("an earlier draft")
        service: Any = profiles_service_pb2
        return _Messages(service.ExportProfilesServiceRequest, profiles)
    except ImportError:
        raise MissingDependencyError(
            "OTLP profiles need OpenTelemetry's messages: pip install 'lanewise[otlp]'"
        ) from None


class _Tables:
    """The dictionary of a request: each string, function, location, stack and attribute once; row 0 stands for none."""

    def __init__(self, messages: _Messages) -> None:
        self.dictionary: Any = messages.profiles.ProfilesDictionary()
        self._rows: dict[tuple[str, Hashable], int] = {}
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            getattr(self.dictionary, f"{table}_table").add()
        self.dictionary.string_table.append("")

    def string(self, text: str) -> int:
        """Row of a text."""
        if not text:
            return 0
        key = ("string", text)
        if key not in self._rows:
            self._rows[key] = len(self.dictionary.string_table)
            self.dictionary.string_table.append(text.encode("utf-8", "replace").decode())
        return self._rows[key]

    def attribute(self, name: str, value: str) -> int:
        """Row of an attribute with a text."""

        def fill(row: Any) -> None:
            row.key_strindex, row.value.string_value = self.string(name), value

        return self._row("attribute", (name, value), fill)

    def location(self, source: Source, python: bool) -> int:
        """Row of a place in the program."""

        def fill_function(row: Any) -> None:
            row.name_strindex = row.system_name_strindex = self.string(source.function)
            row.filename_strindex, row.start_line = self.string(source.file), source.begin

        def fill(row: Any) -> None:
            at = row.lines.add()
            at.function_index, at.line = self._row("function", source[:3], fill_function), source.line
            if python:
                row.attribute_indices.append(self.attribute("profile.frame.type", "cpython"))

        return self._row("location", (source, python), fill)

    def stack(self, locations: tuple[int, ...]) -> int:
        """Row of a stack, innermost place first."""
        return self._row("stack", locations, lambda row: row.location_indices.extend(locations))

    def _row(self, table: str, key: Hashable, fill: Callable[[Any], object]) -> int:
        known = self._rows.get((table, key))
        if known is None:
            rows = getattr(self.dictionary, f"{table}_table")
            known = self._rows[table, key] = len(rows)
            fill(rows.add())
        return known


def _stacks(tree: Tree, tables: _Tables) -> Callable[[int], int]:
    """The row of each context's stack, on demand."""
    parent = tree.parent.tolist()

    def location(node: int) -> int:
        kind = int(tree.kind[node])
        source = source_of(kind, tree.label(node), tree.strings[int(tree.detail[node])])
        return tables.location(source, kind == NodeKind.FRAME)

    def stack(node: int) -> int:
        path: list[int] = []
        while node >= 0:
            path.append(location(node))
            node = parent[node]
        return tables.stack(tuple(path))

    return stack
