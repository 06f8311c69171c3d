"""A text in pages: no answer is larger than an assistant likes to read at once."""

from __future__ import annotations

from lanewise.errors import UsageError

__all__ = ["PAGE_BYTES", "page_of"]

PAGE_BYTES = 4096
_FOOTER_BYTES = 64


def page_of(text: str, page: int) -> str:
    """One page of a text, in at most `PAGE_BYTES` of UTF-8; pages count from 1 and end with a line where they can.

    Raises:
        UsageError: there is no such page.
    """
    pages = [text] if len(text.encode()) <= PAGE_BYTES else _cut(text, PAGE_BYTES - _FOOTER_BYTES)
    if not 1 <= page <= len(pages):
        raise UsageError(f"there is no page {page}: the answer has {len(pages)}")
    if len(pages) == 1:
        return text
    more = f"; page={page + 1} goes on" if page < len(pages) else ""
    return f"{pages[page - 1].rstrip()}\n\n(page {page} of {len(pages)}{more})"


def _cut(text: str, size: int) -> list[str]:
    pages: list[str] = []
    held = b""
    for line in text.splitlines(keepends=True):
        data = line.encode()
        if held and len(held) + len(data) > size:
            pages.append(held.decode())
            held = b""
        while len(data) > size:  # a line by itself, cut between characters
            part = data[:size].decode(errors="ignore")
            pages.append(part)
            data = data[len(part.encode()) :]
        held += data
    return [*pages, held.decode()] if held else pages
