"""Options as fields of dataclasses, from which flags and manifests derive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

from tfshards.schemas.errors import OptionsError
from tfshards.schemas.json_reader import Json

T = TypeVar("T")

_METADATA = "option"


class Record(Protocol):
    """A dataclass, some of whose fields are options."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@dataclass(frozen=True)
class Option:
    """The declaration of an option.

    Attributes:
        help: what it does, as a phrase; the default value is added to it.
        flag: its name on the command line without dashes; by default the name of the field.
        metavar: placeholder of the value in the help; by default the choices.
        choices: the allowed values, if they are few.
        parse: returns the value of a text, or of all texts of a repeatable flag.
        is_repeatable: whether the flag may be given several times.
        default_text: the default value as the help prints it; by default derived from the field's default.
        recorded: whether manifests record the value: always, if it differs from the default, or never,
            because the bytes of the dataset do not depend on it.
        to_json: returns the value as manifests record it.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    choices: tuple[object, ...] = ()
    parse: Callable[[Any], object] | None = None
    is_repeatable: bool = False
    default_text: str | None = None
    recorded: Literal["always", "changed", "never"] = "changed"
    to_json: Callable[[Any], Json] | None = None

    def value_of(self, given: str | Sequence[str] | bool) -> object:
        """Return the value of what the command line gives."""
        if self.parse is not None:
            return self.parse(given)
        if self.is_repeatable:
            return tuple(cast("Sequence[str]", given))
        return next((choice for choice in self.choices if str(choice) == given), given)


def option(default: T, help: str, **details: object) -> T:
    """Return a field that is an option; ``details`` are the attributes of ``Option``."""
    metadata = {_METADATA: Option(help, **cast("dict[str, Any]", details))}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: cast("T", type(default)()), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(record: type[Record]) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields."""
    return {each.name: each.metadata[_METADATA] for each in fields(record) if _METADATA in each.metadata}


def default_of(each: Field[Any]) -> object:
    """Return the default value of a field."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def help_of(record: type[Record], name: str) -> str:
    """Return the help of an option, with its default."""
    each = next(each for each in fields(record) if each.name == name)
    declared: Option = each.metadata[_METADATA]
    default = default_of(each)
    text = declared.default_text
    if text is None and default not in (None, False, "", (), {}):
        text = f"{default:,}" if isinstance(default, int) else str(default)
    repeatable = "; repeatable" if declared.is_repeatable else ""
    return f"{declared.help}{repeatable}{f' (default: {text})' if text else ''}"


def check_choices(record: Record) -> None:
    """Raise OptionsError if the value of an option is not one of its choices."""
    for each in fields(record):
        declared: Option | None = each.metadata.get(_METADATA)
        value = getattr(record, each.name)
        if declared is None or not declared.choices or (value is None and each.default is None):
            continue
        # True equals 1
        if value not in declared.choices or isinstance(value, (bool, float)):
            raise OptionsError("not-a-choice", name=each.name, found=value, allowed=declared.choices)


def to_json(record: Record) -> dict[str, Json]:
    """Return the options of a record as manifests hold them."""
    found: dict[str, Json] = {}
    for each in fields(record):
        declared: Option | None = each.metadata.get(_METADATA)
        value = getattr(record, each.name)
        if declared is None or declared.recorded == "never":
            continue
        if declared.recorded == "always" or value != default_of(each):
            found[each.name] = value if declared.to_json is None else declared.to_json(value)
    return found


def recorded_values(record: type[Record], recorded: Mapping[str, Json]) -> dict[str, Any]:
    """Return the options of a dataclass among those that a manifest records; the dataclass checks them."""
    return {name: recorded[name] for name in options_of(record) if name in recorded}
