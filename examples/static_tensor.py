"""Give each replica static tensors: a table of the classes in ``map_fn``, a mean in the training step.

Usage: python examples/static_tensor.py DATASET   (with the split train, of ten classes)
"""

import sys

import tensorflow as tf

from tfshards import loader


def main(dataset: str) -> None:
    """Train for one epoch in a custom loop and print the first and the last loss."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    # smoothed targets: the graph of each worker holds the captured table once, and no batch carries it
    table = 0.9 * tf.eye(10) + 0.01
    image = loader.Image(size=(32, 32), channels=1, dtype="float32")
    smooth = lambda example, _: (example["image"], tf.gather(table, example["label"]))  # noqa: E731
    data = loader.distribute(strategy, dataset, "train", global_batch_size=64, image=image, map_fn=smooth)
    with strategy.scope():
        mean = tf.Variable([70.0], trainable=False)  # a copy on each device
        weights = tf.Variable(tf.zeros([32 * 32, 10]), aggregation=tf.VariableAggregation.SUM)
    print(*(f"mean on {copy.device}" for copy in strategy.experimental_local_results(mean)), sep="\n")

    def step(images: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.reshape((images - mean) / 100, [-1, 32 * 32]) @ weights
            loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(targets, logits)) / 64
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    train = tf.function(lambda batch: strategy.reduce("SUM", strategy.run(step, batch), axis=None))
    losses = [float(train(batch)) for batch in data]
    print(f"loss: {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {len(losses)}")


main(sys.argv[1])
