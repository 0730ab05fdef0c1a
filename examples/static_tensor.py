"""Give each replica static tensors: a table of the classes in ``map_fn``, a mean in the training step.

Usage: python examples/static_tensor.py DATASET   (with the split train)
"""

import itertools
import sys

import keras
import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest


def main(dataset: str) -> None:
    """Train for one epoch in a custom loop and print the first and the last loss."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    num_classes = len(read_manifest(dataset).schema.class_names)
    # smoothed targets; any other table of the classes works, such as embeddings of their names
    table = np.full((num_classes, num_classes), 0.1 / num_classes, np.float32)
    table = tf.constant(table + 0.9 * np.eye(num_classes, dtype=np.float32))

    def prepare(example, seed):
        """Return an image with random brightness, and the row of its class in the table."""
        image = tf.image.stateless_random_brightness(example["image"], 0.1, seed)
        return image, tf.gather(table, example["label"])

    data = loader.distribute(
        strategy,
        dataset,
        "train",
        global_batch_size=64,
        image=loader.Image(size=(32, 32), channels=1, dtype="float32"),
        shuffle=loader.Shuffle(seed=0),
        # the graph of each worker holds the captured table once; no batch carries it
        map_fn=prepare,
    )
    # one copy on each device
    constants = loader.replicate(strategy, {"mean": [[[[70.0]]]], "scale": 100.0})
    for copy in strategy.experimental_local_results(constants["mean"]):
        print(f"mean on {copy.device}")
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((32, 32, 1)), keras.layers.Flatten(), keras.layers.Dense(num_classes)]
        )
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)

    def step(batch, given):
        images, targets = batch
        with tf.GradientTape() as tape:
            logits = model((images - given["mean"]) / given["scale"])
            loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(targets, logits)) / 64
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train(batch):
        return strategy.reduce("SUM", strategy.run(step, args=(batch, constants)), axis=None)

    steps = loader.steps_per_epoch(dataset, "train", 64)
    losses = [float(train(batch)) for batch in itertools.islice(data, steps)]
    print(f"loss: {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {steps}")


if __name__ == "__main__":
    main(sys.argv[1])
