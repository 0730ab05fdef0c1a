"""The schema of a dataset: its features in order, and the names of its classes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tfshards.schemas.feature import Feature
from tfshards.schemas.json_reader import Json, ObjectReader, shown


@dataclass(frozen=True)
class Schema:
    """The features and class names of a dataset.

    Attributes:
        features: features, in the order in which they are listed and loaded.
        class_names: name of each class, in label order; empty if the classes have no names.

    Raises:
        ValueError: there are no features, a name is repeated, or there are class names but no label.
    """

    features: tuple[Feature, ...]
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        faults = schema_faults(self.features, self.class_names)
        if faults:
            raise ValueError("; ".join(f"{field} {message}" for field, message in faults))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(f"no feature {name!r}; the features are {', '.join(self.names)}")

    @property
    def label(self) -> Feature | None:
        """The scalar feature of kind ``label``, or None if there is none."""
        return next((f for f in self.features if f.kind == "label" and f.shape == ()), None)

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of the schema's canonical JSON."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]

    def to_json(self) -> dict[str, Json]:
        """Return the schema as JSON values, as in ``dataset.json``."""
        return {
            "features": [feature.to_json() for feature in self.features],
            "class_names": list(self.class_names),
        }

    @classmethod
    def read(cls, reader: ObjectReader) -> Schema | None:
        """Return the schema in ``reader``, or None after noting its problems."""
        known = len(reader.problems)
        reader.only(("features", "class_names"))
        read = [Feature.read(item) for item in reader.objects("features")]
        class_names = reader.strings("class_names")
        features = tuple(feature for feature in read if feature is not None)
        # Faults that a feature with problems of its own might resolve are not reported.
        complete = len(features) == len(read) and isinstance(reader.value.get("features"), list)
        for field, message in (schema_faults if complete else _name_faults)(features, class_names):
            reader.note(field, message)
        return cls(features, class_names) if len(reader.problems) == known else None


def schema_faults(features: Sequence[Feature], class_names: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is wrong with a schema that has these features and class names, as (field, message)."""
    faults = _name_faults(features, class_names)
    if not features:
        faults.append(("features", "is empty, must hold at least one feature"))
    if class_names and not any(feature.kind == "label" for feature in features):
        faults.append(("class_names", "is not empty, but no feature is of kind 'label'"))
    return faults


def _name_faults(features: Sequence[Feature], class_names: Sequence[str]) -> list[tuple[str, str]]:
    lists = (("features", [feature.name for feature in features]), ("class_names", class_names))
    return [
        (field, f"contains the name {shown(name)} {times} times")
        for field, names in lists
        for name, times in Counter(names).items()
        if times > 1
    ]
