"""Objects that configure the API server: request priority and admission policy, with their values."""
