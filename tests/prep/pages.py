"""Parse a page of HTML into elements, for tests of ``report``."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Parsed(HTMLParser):
    """The elements of a page in order, each with the text inside it."""

    source: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in ("meta", "link", "img", "input", "br"):
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open.pop().tag == tag, tag

    def handle_data(self, data):
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.elements
            if one.tag == tag and all(one.attributes.get(name) == value for name, value in attributes.items())
        ]

    def section(self, name: str) -> Element:
        (found,) = self.all("section", id=name)
        return found

    def rows(self) -> list[list[str]]:
        """The cells of each row of a table."""
        found: list[list[str]] = []
        for one in self.elements:
            if one.tag == "tr":
                found.append([])
            elif one.tag in ("td", "th"):
                found[-1].append(one.text.strip())
        return found


def parsed(path: Path) -> Parsed:
    return Parsed(path.read_text(encoding="utf-8"))
