"""The callback methods that Keras 3 and tf_keras call, for the loader's own callbacks.

Subclassing Keras's ``Callback`` would import Keras with the loader, and would choose between the two
packages.
"""

from __future__ import annotations

from typing import Any


class Hooks:
    """A callback that does nothing; Keras does not call the methods that a subclass does not override."""

    _supports_tf_logs = True

    # Keras passes an index and logs, or only logs.
    def _nothing(self, *_: Any, **__: Any) -> None: ...  # noqa: ANN401

    _nothing._is_default = True  # type: ignore[attr-defined]

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


for _name in (
    *("on_train_end", "on_epoch_begin", "on_batch_begin", "on_batch_end", "on_train_batch_begin"),
    *(f"on_{kind}_{when}" for kind in ("test", "predict") for when in ("begin", "end")),
    *(f"on_{kind}_batch_{when}" for kind in ("test", "predict") for when in ("begin", "end")),
):
    setattr(Hooks, _name, Hooks._nothing)
