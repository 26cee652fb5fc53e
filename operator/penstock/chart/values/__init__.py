"""All values of the chart: their defaults and refusals, their JSON schema, values.yaml and its page."""
