"""Parts of the schemas that several kinds have: types of fields, lists, rules, conditions. No kind."""
