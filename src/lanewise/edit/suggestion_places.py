"""Where suggestions stand in a file as it was, though edits moved its lines; and the comments that decline them."""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.edit.analysis.imported_names import Names
    from lanewise.edit.edit import Suggestion

__all__ = ["Places"]

_COMMENT = re.compile(r"#\s*lanewise:\s*ignore(?:\[([\w\s,-]*)\])?")
_MARK = "lanewise:"


class Places:
    """The lines of one parsed text, against those of the file."""

    def __init__(self, source: str, names: Names) -> None:
        now = names.module.code
        self._names = names
        self._ignored = _ignored(now) if _MARK in now else {}
        same = source == now
        self._blocks = [] if same else SequenceMatcher(None, source.splitlines(), now.splitlines(), False).get_opcodes()

    def wanted(self, one: Suggestion, node: Any, may: Callable[[Suggestion], bool]) -> Suggestion | None:
        """The suggestion with its line in the file, unless a comment or the user declines it."""
        placed = one._replace(line=self._line_before(one.line))
        if any(names is None or one.name in names for names in self._comments(node)):
            return None
        return placed if may(placed) else None

    def _comments(self, node: Any) -> list[frozenset[str] | None]:
        """What comments at a statement decline, on its first line, its last if it is a plain one, or alone above it."""
        first, last = self._names.lines(node)
        body = getattr(node, "body", None)
        if body is not None and hasattr(body, "header"):  # of a compound statement the header alone is meant
            last = max(first, self._names.lines(body)[0] - 1)
        above = self._ignored.get(-(first - 1), ())
        return [one for line in range(first, last + 1) for one in self._ignored.get(line, ())] + list(above)

    def _line_before(self, line: int) -> int:
        if not self._blocks:
            return line
        at = bisect_right([block[3] for block in self._blocks], line - 1) - 1
        tag, begin, end, now, _ = self._blocks[max(at, 0)]
        if tag == "equal":
            return begin + line - now
        return max(1, min(begin + line - now, end))


def _ignored(text: str) -> dict[int, tuple[frozenset[str] | None, ...]]:
    """Per line the edits declined there, None for all; a comment alone on its line counts for minus that line."""
    found: dict[int, tuple[frozenset[str] | None, ...]] = {}
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return found
    for token in tokens:
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        names = None if match[1] is None else frozenset(one.strip() for one in match[1].split(","))
        alone = not token.line[: token.start[1]].strip()
        line = -token.start[0] if alone else token.start[0]
        found[line] = (*found.get(line, ()), names)
    return found
