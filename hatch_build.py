"""The description of the package on an index: the README, with links that work there.

Links into the repository are relative in the README. An index does not know the repository, so they become links to
the address `Source` of `project.urls`. While there is no such address, they become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?://|#)(?P<target>[^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Fills in `project.readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the rewritten README to the table `project`."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": rewrite_links(readme, source)}


def rewrite_links(text: str, source: str | None) -> str:
    """Point relative links of a Markdown text to files of the repository at `source`; without one, remove them."""

    def rewrite(match: re.Match[str]) -> str:
        if source is None:
            return "" if match["picture"] else match["text"]
        kind = "raw" if match["picture"] else "blob"
        return f"{match['picture']}[{match['text']}]({source}/{kind}/main/{match['target']})"

    return _LINK.sub(rewrite, text)
