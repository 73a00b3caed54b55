"""The program of every stack here: one cluster, as its file in stacks/ says."""

import pulumi
from pulumi.runtime.config import get_config_env

from components.cluster import TrainingCluster
from components.spec import from_config

cluster = TrainingCluster(pulumi.get_stack(), from_config(get_config_env()))
for name, value in cluster.outputs().items():
    pulumi.export(name, value)
