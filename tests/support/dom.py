"""A page as a tree, refusing what a browser would have to guess: tags out of order, attributes twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"img", "meta"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, selector: str) -> list[Node]:
        """Nodes below of a tag, with a class if `selector` begins with a point, or with an id after #."""
        nodes = list(self.walk())[1:]
        if selector.startswith("."):
            return [n for n in nodes if selector[1:] in n.classes]
        if selector.startswith("#"):
            return [n for n in nodes if n.attributes.get("id") == selector[1:]]
        return [n for n in nodes if n.tag == selector]

    def one(self, selector: str) -> Node:
        (node,) = self.all(selector)
        return node

    def skeleton(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tags and attribute names in order: what outside text must never change."""
        return [(n.tag, tuple(n.attributes)) for n in self.walk()]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("")
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].children.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"comment {data!r}")

    def handle_pi(self, data):
        raise AssertionError(f"instruction {data!r}")

    def unknown_decl(self, data):
        raise AssertionError(f"declaration {data!r}")


def parse(document: str) -> Node:
    """The tree of a document or of a piece of one."""
    builder = _Builder()
    builder.feed(document)
    builder.close()
    assert builder.open == [builder.root], f"<{builder.open[-1].tag}> stays open"
    return builder.root
