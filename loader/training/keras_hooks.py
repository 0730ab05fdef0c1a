"""The callback methods that Keras 3 and tf_keras call, for the loader's own callbacks.

Subclassing Keras's ``Callback`` would import Keras with the loader, and would choose between the two
packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Hooks:
    """A callback that does nothing; Keras does not call the methods that a subclass does not override."""

    _supports_tf_logs = True

    # Keras passes an index and logs, or only logs.
    def _nothing(self, *_: Any, **__: Any) -> None: ...  # noqa: ANN401

    _nothing._is_default = True  # type: ignore[attr-defined]
    on_train_end: ClassVar[Callable[..., None]] = _nothing
    on_epoch_begin: ClassVar[Callable[..., None]] = _nothing
    on_batch_begin: ClassVar[Callable[..., None]] = _nothing
    on_batch_end: ClassVar[Callable[..., None]] = _nothing
    on_train_batch_begin: ClassVar[Callable[..., None]] = _nothing
    on_test_begin: ClassVar[Callable[..., None]] = _nothing
    on_test_end: ClassVar[Callable[..., None]] = _nothing
    on_test_batch_begin: ClassVar[Callable[..., None]] = _nothing
    on_test_batch_end: ClassVar[Callable[..., None]] = _nothing
    on_predict_begin: ClassVar[Callable[..., None]] = _nothing
    on_predict_end: ClassVar[Callable[..., None]] = _nothing
    on_predict_batch_begin: ClassVar[Callable[..., None]] = _nothing
    on_predict_batch_end: ClassVar[Callable[..., None]] = _nothing

    def set_model(self, model: object) -> None:
        """Store the model, as Keras's own callbacks do."""
        self.model: object = model

    def set_params(self, params: object) -> None:
        """Store the parameters of ``fit``, as Keras's own callbacks do."""
        self.params: object = params

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
