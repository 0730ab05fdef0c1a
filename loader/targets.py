"""Classes as vectors: one-hot for a class, multi-hot for a list of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfshards.loader.options import check_integer, check_names
from tfshards.schemas import Feature, OptionsError, Schema


def check_one_hot(one_hot: object) -> None:
    """Raise unless ``one_hot`` is None, a list of names, or depths by name.

    Raises:
        OptionsError: it is something else.
    """
    check_names("one_hot", None if isinstance(one_hot, Mapping) else one_hot)
    if one_hot is not None and not one_hot:
        raise OptionsError(f"one_hot={one_hot!r} names no feature; leave it out for the classes' numbers")
    if not isinstance(one_hot, Mapping):
        return
    for name, depth in one_hot.items():
        check_integer(f"one_hot[{name!r}]", depth)
        if depth < 1:
            raise OptionsError(f"one_hot[{name!r}]={depth} must be at least 1")


def one_hot_depths(
    schema: Schema,
    features: Sequence[Feature],
    label_counts: Mapping[str, int],
    one_hot: Sequence[str] | Mapping[str, int] | None,
) -> dict[str, int]:
    """Return the length of the vectors that ``one_hot`` asks for, by feature.

    Args:
        schema: of the dataset.
        features: that are delivered.
        label_counts: of the split.
        one_hot: names, or depths by name.

    Raises:
        OptionsError: a name is none of ``features``, or holds no integers; a depth is not known, or too small
            for the classes that there are.
    """
    delivered = {feature.name: feature for feature in features}
    given = dict(one_hot) if isinstance(one_hot, Mapping) else {}
    depths = {}
    for name in one_hot or ():
        if name not in delivered:
            raise OptionsError(
                f"one_hot= names {name!r}, which is not delivered; there is {', '.join(map(repr, delivered))}"
            )
        feature = delivered[name]
        if feature.kind == "image" or "int" not in feature.dtype:
            raise OptionsError(f"one_hot= names {name!r}, which holds {feature.dtype}, not classes' numbers")
        names = schema.class_names if feature.kind == "label" else ()
        numbers = [] if names or feature != schema.label else [int(key) for key in label_counts]
        least = len(names) or max(numbers, default=-1) + 1
        depth = given.get(name, len(names))
        if not depth:
            raise OptionsError(
                f"one_hot= names {name!r}, whose classes have no names that could be counted; give their "
                f"number, as in one_hot={{{name!r}: {least or 10}}}"
            )
        if min(numbers, default=0) < 0:
            raise OptionsError(f"one_hot= names {name!r}, which holds the class {min(numbers)}, below 0")
        if depth < least:
            raise OptionsError(f"one_hot={{{name!r}: {depth}}} has no place for all classes; use {least}")
        depths[name] = int(depth)
    return depths


def one_hot_vectors(values: tf.Tensor, feature: Feature, depth: int) -> tf.Tensor:
    """Return the classes in ``values`` as vectors of 0 and 1, float32; any other number is an error.

    Args:
        values: integers of any shape; ragged ``(batch, None)``, or of an example ``(None,)``, for lists.
        feature: whose values they are.
        depth: the number of classes.

    Returns:
        Shape ``(*values.shape, depth)``; for lists ``(batch, depth)`` or ``(depth,)``, with 1 for each class
        in the list.
    """
    if not feature.is_ragged:
        return tf.one_hot(_within(tf.cast(values, tf.int64), feature, depth), depth)
    if not isinstance(values, tf.RaggedTensor):
        return one_hot_vectors(tf.RaggedTensor.from_tensor(values[tf.newaxis]), feature, depth)[0]
    classes = _within(tf.cast(values.values, tf.int64), feature, depth)
    places = tf.stack([values.value_rowids(), classes], axis=1)
    hits = tf.scatter_nd(places, tf.ones_like(classes, tf.float32), tf.stack([values.nrows(), depth]))
    return tf.ensure_shape(tf.minimum(hits, 1), [values.shape[0], depth])


def _within(classes: tf.Tensor, feature: Feature, depth: int) -> tf.Tensor:
    fits = tf.logical_and(classes >= 0, classes < depth)
    # without quotes, which come escaped from the graph
    after = f", for which one_hot= of depth {depth} has no place; the classes are 0 to {depth - 1}"
    return require(classes, fits, classes, f"feature {feature.name} holds the class ", after)


def require(values: tf.Tensor, fits: tf.Tensor, shown: tf.Tensor, before: str, after: str) -> tf.Tensor:
    """Return ``values``; where one of them does not fit it is an error in the graph.

    Args:
        values: any shape.
        fits: bool of the same shape.
        shown: integers of the same shape; the error names that of the first which does not fit.
        before: the text of the error up to the number.
        after: the text behind it.
    """

    def fail() -> tf.Tensor:
        number = tf.boolean_mask(tf.reshape(shown, [-1]), tf.reshape(tf.logical_not(fits), [-1]))[0]
        text = tf.strings.join([before, tf.strings.as_string(number), after])
        with tf.control_dependencies([tf.debugging.Assert(False, [text])]):
            return tf.constant(False)

    checked = tf.cond(tf.reduce_all(fits), lambda: tf.constant(True), fail)
    with tf.control_dependencies([checked]):
        return tf.identity(values)
