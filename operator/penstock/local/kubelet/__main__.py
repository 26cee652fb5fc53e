"""`python -m penstock.local.kubelet CLUSTER INDEX`: run a node, as the first process of its namespace."""

import sys

from penstock.local.kubelet.supervisor import Supervisor
from penstock.local.kubelet.tools import read_paths
from penstock.local.record import get

if __name__ == "__main__":
    found = get(sys.argv[1])
    Supervisor(found, int(sys.argv[2]), read_paths(found)).run()
