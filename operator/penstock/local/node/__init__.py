"""The node agent: a kubelet whose containers are plain processes."""
