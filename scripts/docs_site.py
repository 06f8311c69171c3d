"""A hook of mkdocs: the pages of docs/ are read on the repository's site as well, and link to files beside docs/.

On the built site such a link (to a result file, an example, a test) has nowhere to lead: it becomes the file's path.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ as paths of the repository; those to a folder of docs/ as its index."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replaced(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith(("mailto:", "/")):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if not path.startswith("docs/"):
            plain = words.strip("`")
            return f"`{path}`" if plain in (path, posixpath.basename(path)) else f"{words} (`{path}`)"
        if not posixpath.splitext(path)[1]:
            return f"[{words}]({target.rstrip('/')}/index.md{anchor})"
        return found[0]

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(replaced, part) for part in parts)
