"""The features of a dataset in their order, and the names of its classes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from tfshards.schemas.feature import Feature
from tfshards.schemas.reading import Json, ObjectReader


@dataclass(frozen=True)
class Schema:
    """What each example of a dataset holds.

    Attributes:
        features: in the order in which they are listed and delivered.
        class_names: the name of class ``i`` at place ``i``, or empty where the classes have no names.

    Raises:
        ValueError: a name stands twice.
    """

    features: tuple[Feature, ...]
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (("feature", self.names), ("class", self.class_names)):
            repeated = _repeated(names)
            if repeated:
                raise ValueError(f"{what} names stand twice: {', '.join(map(repr, repeated))}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(f"no feature {name!r}; there are {', '.join(self.names)}")

    @property
    def label(self) -> Feature | None:
        """The scalar feature of kind ``label``, or None if there is none."""
        return next((f for f in self.features if f.kind == "label" and f.shape == ()), None)

    @property
    def fingerprint(self) -> str:
        """The first 16 hex digits of the SHA-256 of the schema's canonical JSON."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]

    def to_json(self) -> dict[str, Json]:
        """Return the schema as it stands in ``dataset.json``."""
        return {
            "features": [feature.to_json() for feature in self.features],
            "class_names": list(self.class_names),
        }

    @classmethod
    def read(cls, reader: ObjectReader) -> Schema:
        """Return the schema in ``reader``, less what is wrong with it, which is noted there."""
        reader.only(("features", "class_names"))
        features = [Feature.read(item) for item in reader.objects("features")]
        class_names = reader.strings("class_names")
        sound = [feature for feature in features if feature is not None]
        for field, names in (("features", [f.name for f in sound]), ("class_names", class_names)):
            for name in _repeated(names):
                reader.note(field, f"the name {name!r} stands twice")
        if not features:
            reader.note("features", "is empty; an example has at least one feature")
        unique = {feature.name: feature for feature in sound}
        return cls(tuple(unique.values()), tuple(dict.fromkeys(class_names)))


def _repeated(names: tuple[str, ...] | list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
