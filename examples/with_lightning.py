"""Train with Lightning, on one device or on several ranks.

Usage: python examples/with_lightning.py DATASET   (with the splits train and test)
"""

import sys

import lightning
import torch

from tfshards import loader


class Digits(lightning.LightningModule):
    """A linear classifier."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path, self.net, self.right = path, torch.nn.Linear(32 * 32, 10), []

    def loader_of(self, split: str, **options: object) -> torch.utils.data.DataLoader:
        """Return the batches of this rank; Lightning neither divides them again nor replaces the sampler."""
        image = loader.Image(size=(32, 32), channels=1, dtype="float32")
        worker = loader.Worker(self.trainer.global_rank, self.trainer.world_size)
        options = {"batch_size": 64 // worker.count, "worker": worker, **options}
        batches = loader.batches(self.path, split, select=("image", "label"), image=image, **options)
        return loader.torch.data_loader(batches, num_workers=2)

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        """Return the shuffled batches of this rank."""
        return self.loader_of("train", shuffle=loader.Shuffle(seed=0))

    def training_step(self, batch: list, index: int) -> torch.Tensor:
        """Return the loss."""
        return torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1) / 255), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), 0.005)


model = Digits(sys.argv[1])
trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(model)
found = [(model.net(x.flatten(1) / 255).argmax(1) == y) for x, y in model.loader_of("test", remainder="keep")]
print(f"accuracy: {torch.cat(found).float().mean():.4f} on {sum(map(len, found))} held-out examples")
