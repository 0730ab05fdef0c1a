"""What Keras 3 and tf_keras call on a callback, without either: importing the loader would import it."""

from __future__ import annotations

from typing import Any


class Hooks:
    """The methods that Keras 3 and tf_keras call on a callback; those that stay as they are cost nothing."""

    _supports_tf_logs = True

    # Any arguments: a hook takes an index and logs, or logs alone.
    def _nothing(self, *_: Any, **__: Any) -> None: ...  # noqa: ANN401

    _nothing._is_default = True  # type: ignore[attr-defined]
    on_train_end = on_epoch_begin = on_batch_begin = on_batch_end = on_train_batch_begin = _nothing
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _nothing
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _nothing

    def set_model(self, model: object) -> None:
        """Keep Keras's model, as its own callbacks do."""
        self.model = model

    def set_params(self, params: object) -> None:
        """Keep Keras's parameters, as its own callbacks do."""
        self.params = params

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
