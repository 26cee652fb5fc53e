"""Commands that write the generated files of the repository, or check them."""
