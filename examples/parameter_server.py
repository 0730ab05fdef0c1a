"""Train with ParameterServerStrategy: two workers and a parameter server, here as servers of this process.

Usage: python examples/parameter_server.py DATASET   (with the split train)
"""

import socket
import sys

import tensorflow as tf

from tfshards import loader
from tfshards.schemas import read_manifest

PATH, JOBS = sys.argv[1], {"worker": 2, "ps": 1}
features = loader.feature_description(PATH, ("image", "label"))
shards = [f"{PATH}/{shard.path}" for shard in read_manifest(PATH).splits["train"].shards]
probes = {job: [socket.create_server(("127.0.0.1", 0)) for _ in range(count)] for job, count in JOBS.items()}
hosts = {job: [f"127.0.0.1:{probe.getsockname()[1]}" for probe in each] for job, each in probes.items()}
_ = [probe.close() for each in probes.values() for probe in each]
# with fewer threads than servers, one waits for another
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
servers = [tf.distribute.Server(hosts, job, i, config=config) for job in JOBS for i in range(JOBS[job])]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(hosts), rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    weights = tf.Variable(tf.zeros([32 * 32, 10]))


def parsed(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the pixels of an example, shape (1024,), and its label."""
    example = tf.io.parse_single_example(record, features)
    pixels = tf.io.decode_image(example["image"], 1, expand_animations=False)
    return tf.reshape(tf.image.resize(pixels, (32, 32)), [-1]) / 255, example["label"]


def data() -> tf.data.Dataset:
    """Return what one worker reads, in an order of its own: whoever is free takes the next step."""
    files = tf.data.Dataset.from_tensor_slices(shards).shuffle(len(shards)).repeat()
    return files.interleave(tf.data.TFRecordDataset, cycle_length=2).shuffle(1000).map(parsed).batch(32)


@tf.function
def step(iterator: tf.distribute.DistributedIterator) -> tf.Tensor:
    """Take a step on one worker."""
    pixels, labels = next(iterator)
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, pixels @ weights)
        loss = tf.reduce_mean(losses)
    weights.assign_sub(0.03 * tape.gradient(loss, weights))
    return loss


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
iterator = iter(coordinator.create_per_worker_dataset(data))
losses = [
    float(each) for each in coordinator.fetch([coordinator.schedule(step, (iterator,)) for _ in range(200)])
]
print(f"loss: {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {len(losses)}")
