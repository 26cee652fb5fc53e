"""Commands about scaling decisions: explain, record and replay them."""
