"""Train in a custom loop under MirroredStrategy; two logical CPU devices take the place of GPUs.

Usage: python examples/mirrored_custom_loop.py DATASET   (with the splits train and test)
"""

import sys

import keras
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest

GLOBAL_BATCH_SIZE = 64


def main(dataset: str) -> None:
    """Train for a few epochs and print the accuracy on the split ``test``."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    image = loader.Image(size=(32, 32), channels=1, dtype="float32")
    options = {"global_batch_size": GLOBAL_BATCH_SIZE, "select": ("image", "label"), "image": image}
    train = loader.distribute(strategy, dataset, "train", shuffle=loader.Shuffle(seed=0), **options)
    test = loader.distribute(strategy, dataset, "test", remainder="pad", **options)

    manifest = read_manifest(dataset)
    with strategy.scope():
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
        logits = keras.layers.Dense(len(manifest.schema.class_names))
        model = keras.Sequential([keras.Input((32, 32, 1)), *layers, logits])
        optimizer = keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(batch: tuple) -> None:
        def replica(image: tf.Tensor, label: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(image, training=True))
                # The optimizer of Keras adds the gradients of the replicas.
                loss = tf.reduce_sum(losses) / GLOBAL_BATCH_SIZE
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        strategy.run(replica, args=batch)

    @tf.function
    def num_right(batch: tuple) -> tf.Tensor:
        def replica(image: tf.Tensor, label: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
            # Padding has weight 0.
            return tf.reduce_sum(weight * tf.cast(tf.argmax(model(image), axis=1) == label, tf.float32))

        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    for _ in range(10):
        for batch in train:
            train_step(batch)
    held_out = manifest.splits["test"].num_examples
    right = sum(float(num_right(batch)) for batch in test)
    print(f"accuracy: {right / held_out:.4f} on {held_out} held-out examples")


if __name__ == "__main__":
    main(sys.argv[1])
