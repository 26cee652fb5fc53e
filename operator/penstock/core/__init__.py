"""Pure decisions: data in, data out. `now` and `draw` are arguments; nothing here does I/O or reads a clock.

    reconcile > manifests | rollout > observed > canary | scaling > routing | spec > formats

Each package imports only those to its right.
"""
