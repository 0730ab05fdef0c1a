"""How rows declare a build: one small adapter for each kind of source.

A row names options by one vocabulary. Only this module knows how the functions and flags of
``tfshards.prep`` spell them.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.surface import command as cli
from tfshards import prep
from tfshards.prep import ImageOptions, Options

OF_BUILD = {field.name for field in fields(Options)}
OF_IMAGES = {field.name for field in fields(ImageOptions)}


@dataclass(frozen=True)
class Call:
    """A build of one source into the folder ``out``.

    Attributes:
        kind: of the source, as on the command line.
        source: path, or paths, or a function that returns values in memory.
        roles: role of each column or array that its name does not determine.
        given: options by name, of the source, of images and of the build.
    """

    kind: str
    source: Any
    roles: dict[str, str]
    given: dict[str, Any]

    def build(self, **changed: Any) -> Any:
        """Build with the public function, and return the manifest."""
        given = {"shards": 2, **self.given, **changed}
        options = {name: given.pop(name) for name in OF_BUILD & {*given}}
        of_build = {name: given.pop(name) for name in ("shards", "seed", "overwrite", "log") if name in given}
        source = SOURCES[self.kind](self.source, self.roles, given)
        return prep.build(source, "out", options=Options(**options), **of_build)

    @property
    def is_in_memory(self) -> bool:
        return callable(self.source) or self.kind == "examples"

    def run(self, *more: str) -> int:
        """Build with a command line in this process, and return the exit status."""
        words = ["build", self.kind]
        words += [*self.source] if isinstance(self.source, tuple) else [self.source]
        words.append("out")
        for name, role in self.roles.items():
            words.append(f"--roles={name}={role}")
        given = {"shards": 2, **self.given}
        if names := given.pop("class_names", None):
            with open("class_names.txt", "w", encoding="utf-8") as file:
                # as labels.txt has them
                file.write("".join(f"{name!r}"[1:-1] + "\n" for name in names))
            words.append("--class-names=class_names.txt")
        for name, value in given.items():
            words += _flag(name, value)
        return cli.main([*map(str, words), *more])


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if isinstance(value, dict):
        return [f"{flag}={key}={each}" for key, each in value.items()] or [f"{flag}="]
    return [f"{flag}={each}" for each in (value if isinstance(value, (tuple, list)) else [value])]


def _taken(given: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: given.pop(name) for name in names & {*given}}


def _image_folder(source: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    return prep.ImageFolder(source, ImageOptions(**_taken(given, OF_IMAGES)), **given)


def _table(source: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    source = source() if callable(source) else source
    return prep.Table(source, roles, ImageOptions(**_taken(given, OF_IMAGES)), **given)


def _annotated(kind: Any, source: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    return kind(source, roles, ImageOptions(**_taken(given, OF_IMAGES)), **given)


def _arrays(source: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    return prep.Arrays(source() if callable(source) else source, roles, **given)


def _examples(source: Any, roles: dict[str, str], given: dict[str, Any]) -> Any:
    images = ImageOptions(**_taken(given, OF_IMAGES))
    return prep.Examples(source(), roles, images, **given)


SOURCES: dict[str, Callable[..., Any]] = {
    "images": _image_folder,
    "table": _table,
    "arrays": _arrays,
    "examples": _examples,
    "coco": lambda source, roles, given: _annotated(prep.Coco, source, roles, given),
    "yolo": lambda source, roles, given: _annotated(prep.Yolo, source, roles, given),
}


def images(source: str = "in", **given: Any) -> Call:
    """Declare a folder of images."""
    return Call("images", source, {}, given)


def table(
    source: str | Callable[[], Any] = "in.csv", roles: dict[str, str] | None = None, **given: Any
) -> Call:
    """Declare the rows of a file, or of what a function returns, and the images that they name."""
    return Call("table", source, roles or {}, given)


def arrays(*source: Any, roles: dict[str, str] | None = None, **given: Any) -> Call:
    """Declare files of arrays, or a function that returns arrays by name."""
    return Call("arrays", source[0] if callable(source[0]) else source, roles or {}, given)


def examples(source: Callable[[], Any], roles: dict[str, str] | None = None, **given: Any) -> Call:
    """Declare what a function returns, as an iterable of examples."""
    return Call("examples", source, roles or {}, given)


def coco(source: str = "in", roles: dict[str, str] | None = None, **given: Any) -> Call:
    """Declare annotations of COCO, with the folder of their images as ``root``."""
    return Call("coco", source, roles or {}, given)


def yolo(source: str = "in", roles: dict[str, str] | None = None, **given: Any) -> Call:
    """Declare images with a text file of YOLO each."""
    return Call("yolo", source, roles or {}, given)


def changed(call: Call, **given: Any) -> Call:
    """Return a call with other options."""
    return replace(call, given={**call.given, **given})
