"""A Ray cluster on this machine, in a process of its own: the tests block sockets, and turn warnings into errors.

python ray_nodes.py CPUS…     a node for each number, the first one the head; prints the address, then obeys lines:
    add CPUS    a node more
    kill        kills the processes of a node that is not the head
and ends with its input.
"""

import os
import sys

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

STORE = 80_000_000  # bytes; Ray's least is 75 MB


def main(cpus: list[int]) -> None:
    head = {"num_cpus": cpus[0], "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=count, object_store_memory=STORE) for count in cpus[1:]]
        print(cluster.address, flush=True)
        for line in sys.stdin:
            word, *arguments = line.split()
            if word == "add":
                nodes.append(cluster.add_node(num_cpus=int(arguments[0]), object_store_memory=STORE))
            else:
                cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("done", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]])
