"""The metrics of operator and gateway: name, type, labels and meaning, each defined only here."""
