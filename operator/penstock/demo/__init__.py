"""The demo: a scripted tour on a local cluster, told in the terminal."""
