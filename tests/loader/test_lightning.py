"""``loader.torch.Batches`` in PyTorch Lightning: epochs, validation, and runs that stop and resume."""

from __future__ import annotations

import json

import pytest

from tfshards import loader

from .framework_data import COUNT, run_together, write_data

pytestmark = pytest.mark.nightly

pytest.importorskip("torchdata")
pytest.importorskip("lightning_utilities")

# In another process, since lightning imports torch's compiler, whose LLVM aborts next to TensorFlow's.
PROGRAM = """
import json, sys, warnings
import lightning, torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
from tfshards import loader
warnings.simplefilter("ignore")
path, folder, processes, stop, _ = sys.argv[1:]
assert "tensorflow" not in sys.modules

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 3)
        self.steps, self.validated = [], []

    def training_step(self, batch, _):
        numbers, labels = batch
        self.steps.append(numbers.tolist())
        return torch.nn.functional.cross_entropy(self.layer(numbers[:, None] / 100), labels)

    def on_validation_epoch_start(self):
        self.validated = []

    def validation_step(self, batch, _):
        self.validated += batch[0].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        options = dict(batch_size=8, select=("number", "label"), shuffle=loader.Shuffle(seed=3))
        batches = loader.torch.Batches(path, **options)
        batches.set_epoch(self.trainer.current_epoch)
        return StatefulDataLoader(batches, batch_size=None, num_workers=int(processes))

    def val_dataloader(self):
        batches = loader.torch.Batches(path, batch_size=8, select=("number", "label"), remainder="keep")
        return DataLoader(batches, batch_size=None)

def fitted(checkpoint=None, every=None, **options):
    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        reload_dataloaders_every_n_epochs=1,
        callbacks=[ModelCheckpoint(folder, filename="saved", every_n_train_steps=every)],
        **options,
    )
    trainer.fit(model, datamodule=Data(), ckpt_path=checkpoint)
    return model

stops = {"nowhere": {"max_epochs": 3}, "after an epoch": {"max_epochs": 1}}
first = fitted(**stops[stop]) if stop in stops else fitted(max_steps=int(stop), every=int(stop))
model = first if stop == "nowhere" else fitted(f"{folder}/saved.ckpt", max_epochs=3)
print(json.dumps([first.steps + model.steps if model is not first else model.steps, model.validated]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("stop", "processes"),
    [("nowhere", 2), ("after an epoch", 0), ("after an epoch", 2), ("3", 2), ("10", 0), ("10", 2)],
)
def test_a_fit_reads_the_order_of_load_also_if_it_was_stopped(write_dataset, tmp_path, stop, processes):
    data = write_data(write_dataset, tmp_path / "data")
    (printed,) = run_together(PROGRAM, data, tmp_path, processes, stop)
    steps, validated = json.loads(printed.splitlines()[-1])
    options = {"batch_size": 8, "shuffle": loader.Shuffle(seed=3), "epochs": 3, "select": ("number",)}
    assert steps == [number.tolist() for (number,) in loader.batches(data, **options)]
    assert validated == [*range(COUNT)]
