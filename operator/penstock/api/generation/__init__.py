"""What is generated from the schemas: CRDs, their golden files and their reference pages."""
