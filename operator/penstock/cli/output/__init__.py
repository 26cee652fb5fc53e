"""What commands give back: tables, files, an exit status."""
